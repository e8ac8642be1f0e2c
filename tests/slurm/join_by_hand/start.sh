#!/bin/bash
# private mount+pid+uts namespace; host network
set -e
[ "$(readlink /proc/self/ns/mnt)" != "$(cat /tmp/rc/hostns)" ] || exit 9
I=/var/lib/toolkit-shared/images
R=/tmp/rc/root; mkdir -p /tmp/rc/{upper,work,root}
mount -t tmpfs tmpfs /tmp/rc/up2
mkdir -p /tmp/rc/up2/{u,w}
mount -t overlay overlay -o lowerdir=$I/ami-90b48cb86035c2421/layer:$I/ami-1318ad125da12b8e2/layer:$I/ami-e6cad570154507fc7/layer,upperdir=/tmp/rc/up2/u,workdir=/tmp/rc/up2/w $R
mount -t proc proc $R/proc
mount --rbind /dev $R/dev
mount -t tmpfs tmpfs /tmp/rc/up2
hostname ctl
rm -rf $R/opt/slurm-toolkit $R/etc/slurm-toolkit $R/etc/slurm $R/var/lib/slurm-toolkit $R/etc/systemd/system/slurm-*
mkdir -p $R/etc/slurm $R/run/munge $R/var/log/slurm $R/var/lib/slurm/slurmctld $R/var/lib/slurm/slurmd $R/run/slurm $R/run/slurmctld $R/usr/local/sbin
printf '127.0.0.1 localhost ctl rack1 rack2\n' > $R/etc/hosts
head -c 128 /dev/urandom > $R/etc/munge/munge.key
echo CgroupPlugin=disabled > $R/etc/slurm/cgroup.conf
cp /tmp/rc/slurm.conf $R/etc/slurm/slurm.conf
mkdir -p $R/var/spool/slurmd; for p in up down; do cp /tmp/rc/power.sh $R/usr/local/sbin/lab-power-$p; chmod 755 $R/usr/local/sbin/lab-power-$p; done
cp /tmp/rc/systemctl $R/usr/bin/systemctl; chmod 755 $R/usr/bin/systemctl
chroot $R sh -c 'chown munge:munge /etc/munge/munge.key /run/munge /var/log/munge /var/lib/munge; chmod 400 /etc/munge/munge.key; chown -R slurm:slurm /var/log/slurm /var/lib/slurm /run/slurm /run/slurmctld; useradd -u 2001 -m ada 2>/dev/null; runuser -u munge -- /usr/sbin/munged; exec runuser -u slurm -- /usr/sbin/slurmctld -D -vv' > /tmp/rc/ctl.log 2>&1
