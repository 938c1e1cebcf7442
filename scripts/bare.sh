# Bare systems to try things in; sourced, after scripts/common.sh, by the scripts that do. They need root,
# debootstrap and the network; a system is made once and kept in build/roots.
# shellcheck shell=bash disable=SC2154 # common.sh sets $root and $logs.
roots=$root/build/roots

skip() {
  echo "skipped: $*"
  exit 77
}

# base SUITE: a bare system of that name in $roots/SUITE.tar, made once.
base() {
  local suite=$1 mirror=http://deb.debian.org/debian options=()
  [ ! -e "$roots/$suite.tar" ] || return 0
  [ "$(id -u)" = 0 ] || skip "bare systems need root"
  command -v debootstrap >/dev/null || apt-get install -y --no-install-recommends debootstrap >/dev/null 2>&1 ||
    skip "no debootstrap"
  case $suite in
    jammy | noble)
      mirror=http://archive.ubuntu.com/ubuntu
      options=("--components=main,universe")
      # Debian does not have Ubuntu's keys.
      [ -e /usr/share/keyrings/ubuntu-archive-keyring.gpg ] || options+=(--no-check-gpg)
      ;;
  esac
  mkdir -p "$roots"
  echo "making a bare $suite (some minutes)"
  debootstrap --variant=minbase "${options[@]}" "$suite" "$roots/$suite.new" "$mirror" \
    >"$logs/bare-$suite.log" 2>&1 || {
    rm -rf "$roots/$suite.new"
    tail -n 3 "$logs/bare-$suite.log"
    skip "no $suite could be had from $mirror"
  }
  tar -C "$roots/$suite.new" -cf "$roots/$suite.tar" .
  rm -rf "$roots/$suite.new"
}

inside=""
# shellcheck disable=SC2317 # A trap calls it.
clean_up() {
  [ -z "$inside" ] || rm -rf --one-file-system "$inside"
}

# enter SUITE: unpacks that system into $inside.
enter() {
  base "$1"
  inside=$(mktemp -d "$roots/$1.XXXXXX")
  trap clean_up EXIT
  tar -C "$inside" -xf "$roots/$1.tar"
  # An installer writes this, debootstrap does not.
  printf '127.0.0.1 localhost %s\n::1 localhost\n' "$(uname -n)" >"$inside/etc/hosts"
}

# run COMMAND...: there, with /proc, /dev and /dev/shm of its own, which end with the command.
run() {
  # shellcheck disable=SC2016 # The inner shell expands them.
  unshare --mount --pid --fork bash -c 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" &&
    cp /etc/resolv.conf "$0/etc/resolv.conf" &&
    exec chroot "$0" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"' \
    "$inside" "$@"
}

# quiet COMMAND...: run, whose output is shown only if it fails.
quiet() {
  run "$@" >"$logs/bare-run.log" 2>&1 || {
    tail -n 40 "$logs/bare-run.log"
    fail "failed there: $*"
  }
}

# trust: behind a proxy that has a certificate of its own, the system there takes it too, and so does pip.
# Its package ca-certificates has to be there.
trust() {
  compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null || return 0
  cp /usr/local/share/ca-certificates/*.crt "$inside/usr/local/share/ca-certificates"
  quiet update-ca-certificates
  printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$inside/etc/pip.conf"
}
