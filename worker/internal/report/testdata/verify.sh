#!/bin/sh
# Verifies a signed report without any code of ours: python3 takes it apart and
# computes the HMAC, openssl checks the Ed25519 signature.
#
#   verify.sh REPORT PUBLIC-KEY SECRET
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 - "$1" "$2" "$3" "$dir" <<'PYTHON'
import base64, hashlib, hmac, json, sys

file, key, secret, out = sys.argv[1:]

def encode(b): return base64.urlsafe_b64encode(b).rstrip(b"=").decode()
def decode(s): return base64.urlsafe_b64decode(s + "=" * (-len(s) % 4))

r = json.load(open(file, encoding="utf-8"))
digest = encode(hashlib.sha256(r["body"].encode("utf-8")).digest())
text = "\n".join([r["v"], r["timestamp"], r["nonce"], "POST", r["path"], digest]).encode()
if not hmac.compare_digest(encode(hmac.new(secret.encode(), text, hashlib.sha256).digest()), r["hmac"]):
    sys.exit("the HMAC does not hold")
open(out + "/text", "wb").write(text)
open(out + "/signature", "wb").write(decode(r["ed25519"]))
# An Ed25519 public key in DER is this and its 32 bytes (RFC 8410).
open(out + "/key", "wb").write(bytes.fromhex("302a300506032b6570032100") + decode(key))
PYTHON
openssl pkeyutl -verify -pubin -keyform DER -inkey "$dir/key" -rawin -in "$dir/text" -sigfile "$dir/signature"
