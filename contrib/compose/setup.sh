#!/bin/sh
# Makes what the fleet keeps secret, in ./secrets, and folders for its records, in
# ./data. What is there already stays as it is, so it may be run again.
#
# POLITESSE is the command to make certificates with; by default the image of
# contrib/image.
set -eu
cd "$(dirname "$0")"
umask 077
POLITESSE=${POLITESSE:-docker run --rm --user $(id -u):$(id -g) --volume $PWD:/work --workdir /work politesse:0.1.0}

mkdir -p secrets/fleet secrets/store secrets/postgres data/node1 data/node2 data/node3
secret() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }

[ -e secrets/fleet/fleet.key ] || secret > secrets/fleet/fleet.key
if [ ! -e secrets/fleet/store-auth ]; then
    password=$(secret)
    # The rights are those of docs/fleet.md.
    printf 'user default off\nuser politesse on >%s %s\n' "$password" \
        '~politesse:* +info +evalsha +script|load +time +hget +hmget +hset +hgetall +hdel +exists +pexpire +zadd +zcount +zrem +zrange +zrangebyscore +zremrangebyscore +get +set +del +pttl +xadd +xrange' \
        > secrets/store/users.acl
    printf 'politesse:%s\n' "$password" > secrets/fleet/store-auth
fi
if [ ! -e secrets/fleet/archive-auth ]; then
    password=$(secret)
    printf %s "$password" > secrets/postgres/password
    printf 'politesse:%s\n' "$password" > secrets/fleet/archive-auth
fi

# The root signs a certificate for each node. Its key is not needed to run them: keep it
# somewhere else.
root='--config politesse.toml --set https.ca_cert=secrets/root/ca.pem --set https.ca_key=secrets/root/ca.key'
[ -e secrets/root/ca.pem ] || $POLITESSE $root ca init
for node in node1 node2 node3; do
    [ -e "secrets/$node/ca.pem" ] || $POLITESSE $root ca issue "$node" --out "secrets/$node"
done
$POLITESSE $root ca export > root.pem
chmod 644 root.pem

# compose.yaml runs the containers as this user, who may read the keys.
echo "POLITESSE_USER=$(id -u):$(id -g)" > .env
echo "made secrets/ and data/; crawlers have to trust root.pem"
