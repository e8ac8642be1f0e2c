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
# Where Slurm's packages lie, if the image is built of some (the role slurm_packages).
export TOOLKIT_IMAGES_BUCKET="images-bucket"
/usr/bin/python3 -I - <<'PYTHON'
import hashlib, io, json, os, shutil, subprocess, sys, time, urllib.request, zipfile

import boto3
from botocore.exceptions import BotoCoreError, ClientError

# The output of tojson has no quotes or backslashes besides JSON's own.
SETTINGS = json.loads(r'''{"region": "us-east-1", "endpoint_url": "http://127.0.0.1:4566", "bucket": "images-bucket", "bundle": "0000000000000000000000000000000000000000000000000000000000000000", "bundle_tag": "toolkit:bundle", "status": "status/toolkit-head-0123456789ab.json", "playbook": "image.yml"}''')
HOME = "/opt/slurm-toolkit"
BUNDLE = HOME + "/bundle"
METADATA = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or "http://169.254.169.254"
# Deploy names and uploads the bundle soon after it made the instance, long before this is over.
PATIENCE_SECONDS = 600

environment = dict(os.environ, AWS_DEFAULT_REGION=SETTINGS["region"])
if SETTINGS["endpoint_url"]:
    environment["AWS_ENDPOINT_URL"] = SETTINGS["endpoint_url"]
s3 = boto3.client("s3", region_name=SETTINGS["region"], endpoint_url=SETTINGS["endpoint_url"])
no_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def metadata(path, method, name, value):
    request = urllib.request.Request(METADATA + "/latest/" + path, None, {name: value}, method=method)
    with no_proxy.open(request, timeout=5) as answer:
        return answer.read().decode().strip()


def tag(key):
    token = metadata("api/token", "PUT", "X-aws-ec2-metadata-token-ttl-seconds", "60")
    return metadata("meta-data/tags/instance/" + key, "GET", "X-aws-ec2-metadata-token", token)


def trusted_hash():
    # Of an admin: the argument through SSM, the user data of a builder, the tag that deploy wrote.
    # No role of the cluster can change any of them. The bucket has no say.
    return (sys.argv[1:] or [SETTINGS["bundle"] or tag(SETTINGS["bundle_tag"])])[0]


def fetch():
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            sha = trusted_hash()
            return sha, s3.get_object(Bucket=SETTINGS["bucket"], Key="bundle/" + sha + ".zip")["Body"].read()
        except (BotoCoreError, ClientError, OSError) as error:
            if time.monotonic() > deadline:
                raise
            print("waiting for the bundle:", error, flush=True)
            time.sleep(2)


def check(sha, data):
    found = hashlib.sha256(data).hexdigest()
    if found != sha:
        raise ValueError("bundle " + sha + " is refused, nothing of it was run: its object in s3://"
                         + SETTINGS["bucket"] + " has the SHA-256 " + found)


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
    check(sha, data)
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
