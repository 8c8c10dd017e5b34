#!/bin/sh
# Makes the certificates that lie here: valid from 2020 to 2119, but for the expired one. Their keys are public.
# They have what RFC 5280 demands of a chain, as Python does from 3.13 on.
set -e
here=$(cd "$(dirname "$0")" && pwd)
cd "$(mktemp -d)"
cat > ca.cnf <<END
[ca]
default_ca = here
[here]
new_certs_dir = .
database = index
serial = serial
policy = any
default_md = sha256
copy_extensions = copy
x509_extensions = leaf
unique_subject = no
[any]
commonName = supplied
[root]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[leaf]
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
END
touch index
echo 1000 > serial
make() { # NAME, LAST DAY, arguments of req, arguments of ca
    openssl ecparam -name prime256v1 -genkey -noout > "$1.key"
    openssl req -new -key "$1.key" -subj "/CN=$1" $3 -out "$1.csr"
    openssl ca -batch -notext -config ca.cnf -startdate 20200101000000Z -enddate "$2" -in "$1.csr" -out "$1.crt" $4
    cat "$1.key" "$1.crt" > "$here/$1.pem"
}
names() { echo "-addext subjectAltName=$1"; }
signed() { echo "-cert ca.crt -keyfile ca.key"; }
far=21190101000000Z
make ca $far "" "-selfsign -keyfile ca.key -extensions root"
cp ca.crt "$here/ca.pem"
make engine $far "$(names IP:127.0.0.1,DNS:localhost)" "$(signed)"
make elsewhere $far "$(names DNS:engine.example)" "$(signed)"
make trainer $far "$(names DNS:trainer.example)" "$(signed)"
make expired 20200102000000Z "$(names IP:127.0.0.1)" "$(signed)"
make self $far "$(names IP:127.0.0.1)" "-selfsign -keyfile self.key"
