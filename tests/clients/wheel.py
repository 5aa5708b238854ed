"""Reads a wheel as an installer does, and holds its files against its RECORD.

Usage: wheel.py WHEEL. Prints its SHA-256 and that of each file in it as JSON.
"""

import base64
import csv
import hashlib
import json
import pathlib
import sys
import zipfile

path = pathlib.Path(sys.argv[1])
files = {}
with zipfile.ZipFile(path) as wheel:
    for name in wheel.namelist():
        files[name] = hashlib.sha256(wheel.read(name)).hexdigest()
    (record,) = (name for name in files if name.endswith(".dist-info/RECORD"))
    recorded = {name: digest for name, digest, _ in csv.reader(wheel.read(record).decode().splitlines())}
assert recorded.keys() == files.keys(), recorded
for name, digest in recorded.items():
    if name != record:
        decoded = base64.urlsafe_b64decode(digest.removeprefix("sha256=") + "=").hex()
        assert decoded == files[name], name
print(json.dumps({"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "files": files}))
