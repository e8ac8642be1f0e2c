#!/bin/bash
# First boot of the builder of toolkit-head-0123456789ab: run ansible/image.yml, then power off. The
# toolkit makes the image of the stopped instance.
set -euo pipefail
# Also after a failure: a builder must not run on when no deploy waits for it.
trap 'systemctl poweroff' EXIT
if ! /usr/bin/python3 -I -c 'import boto3' || ! command -v ansible-playbook; then
  export DEBIAN_FRONTEND=noninteractive
  # At its first boot an AMI looks for updates, and holds apt's lock for minutes.
  systemctl stop apt-daily.timer apt-daily-upgrade.timer apt-daily.service apt-daily-upgrade.service || true
  apt-get -q update
  apt-get -q install -y --no-install-recommends ansible-core python3-boto3
fi
/usr/bin/python3 -I - <<'PYTHON'
import io, json, os, shutil, subprocess, sys, time, zipfile

import boto3
from botocore.exceptions import BotoCoreError, ClientError

# The output of tojson has no quotes or backslashes besides JSON's own.
SETTINGS = json.loads(r'''{"region": "us-east-1", "endpoint_url": "http://127.0.0.1:4566", "bucket": "images-bucket", "bundle": "0000000000000000000000000000000000000000000000000000000000000000", "status": "status/toolkit-head-0123456789ab.json", "playbook": "image.yml"}''')
HOME = "/opt/slurm-toolkit"
BUNDLE = HOME + "/bundle"
# CloudFormation may create the bucket after the instance, but long before this time is over.
PATIENCE_SECONDS = 600

environment = dict(os.environ, AWS_DEFAULT_REGION=SETTINGS["region"])
if SETTINGS["endpoint_url"]:
    environment["AWS_ENDPOINT_URL"] = SETTINGS["endpoint_url"]
s3 = boto3.client("s3", region_name=SETTINGS["region"], endpoint_url=SETTINGS["endpoint_url"])


def read(key):
    return s3.get_object(Bucket=SETTINGS["bucket"], Key=key)["Body"].read()


def fetch():
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            sha = SETTINGS["bundle"] or read("bundle/current").decode().strip()
            return sha, read("bundle/" + sha + ".zip")
        except (BotoCoreError, ClientError) as error:
            if time.monotonic() > deadline:
                raise
            print("waiting for the bundle:", error, flush=True)
            time.sleep(2)


def unpack(data):
    fresh = BUNDLE + ".new"
    shutil.rmtree(fresh, ignore_errors=True)
    with zipfile.ZipFile(io.BytesIO(data)) as bundle:
        bundle.extractall(fresh)
        for entry in bundle.infolist():  # extractall forgets which files are programs
            os.chmod(os.path.join(fresh, entry.filename), entry.external_attr >> 16)
    shutil.rmtree(BUNDLE, ignore_errors=True)
    os.replace(fresh, BUNDLE)


def report(failure):
    body = {"state": "failed", "phase": "first boot", "task": "", "done": 0, "total": 0,
            "error": failure, "log_tail": "", "at": time.time(), "bundle": ""}
    try:
        s3.put_object(Bucket=SETTINGS["bucket"], Key=SETTINGS["status"], Body=json.dumps(body))
    except (BotoCoreError, ClientError) as error:
        print("can't report:", error, flush=True)


os.umask(0o022)  # services of other users read these files
os.makedirs(HOME, exist_ok=True)
try:
    sha, data = fetch()
    unpack(data)
except Exception as error:
    report(str(error))
    raise
command = ["/usr/bin/python3", "-m", "slurmplugins.head_boot",
           "--playbook", SETTINGS["playbook"], "--extra-vars", "@" + BUNDLE + "/rendered/vars.json"]
command += ["--status", "s3://" + SETTINGS["bucket"] + "/" + SETTINGS["status"], "--bundle", sha]
environment["PYTHONPATH"] = BUNDLE
sys.exit(subprocess.run(command, cwd=BUNDLE, env=environment).returncode)

PYTHON
# Remove the builder's own files: they don't belong in the image.
rm -rf /opt/slurm-toolkit/bundle
: > /etc/machine-id
