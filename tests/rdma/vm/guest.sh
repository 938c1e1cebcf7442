# shellcheck shell=bash disable=SC2154,SC2015 # Variables come from /run/vm/config; errors end it.
# In the machine's final root: makes the devices, runs the command, says how it went.
unset LC_ALL
cd / || exit
# shellcheck disable=SC1091 # Written by vm/run.
. /run/vm/config
bb() { /run/vm/busybox "$@"; }
port() {
  local one
  for one in /sys/class/virtio-ports/*; do
    [[ $(<"$one/name") == "$1" ]] && echo "/dev/${one##*/}"
  done
}
exec 8>"$(port vm.status)" # Lines to the host: up, done, expired, exit N, error.
halt() { sync; exec 8>&-; bb reboot -f; sleep 60; }
error() { echo "error $*" >&8; halt; }

mkdir -p /dev/pts /dev/shm /run/netns
mount -t devpts -o mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
[[ -e /dev/fd ]] || ln -s /proc/self/fd /dev/fd
[[ -e /dev/stdin ]] || { ln -s fd/0 /dev/stdin; ln -s fd/1 /dev/stdout; ln -s fd/2 /dev/stderr; }
mount -t cgroup2 cgroup2 /sys/fs/cgroup 2>/dev/null
echo vm >/proc/sys/kernel/hostname
ip link set lo up || error "ip link set lo up"
if [[ $share ]]; then
  mkdir -p "$share"
  mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=mmap share "$share" ||
    error "cannot mount $share"
fi

# A device hands a packet to the one of the interface it came in by, so packets have to cross the
# bridge: these let them do so between addresses of one machine. Without IPv6 the first GID with an
# address is the IPv4 one.
for module in ib_core ib_uverbs rdma_rxe veth bridge sch_netem; do
  modprobe "$module" || error "modprobe $module"
done
conf=/proc/sys/net/ipv4/conf
for which in all default; do
  echo 0 >$conf/$which/rp_filter
  echo 1 >$conf/$which/accept_local
  echo 1 >/proc/sys/net/ipv6/conf/$which/disable_ipv6
done
echo 1 >$conf/default/arp_ignore
echo 2 >$conf/default/arp_announce
mtu=4200 # RoCE's own is 4096 then.
ip link add rdmabr type bridge && ip link set rdmabr mtu $mtu up || error "bridge"
for ((i = 0; i < rxe; ++i)); do
  ip link add "rdma$i" mtu $mtu type veth peer name "rdmap$i" mtu $mtu &&
    ip link set "rdmap$i" master rdmabr up &&
    ip addr add "10.99.0.$((i + 1))/24" dev "rdma$i" &&
    ip link set "rdma$i" up &&
    rdma link add "rxe$i" type rxe netdev "rdma$i" || error "rxe$i"
done
# Known neighbours: a first connection else takes a second, for the answer to ARP.
for ((i = 0; i < rxe; ++i)); do
  for ((j = 0; j < rxe; ++j)); do
    ((i == j)) || echo "neigh replace 10.99.0.$((j + 1)) lladdr $(<"/sys/class/net/rdma$j/address")" \
      "dev rdma$i nud permanent"
  done
done | ip -batch - || error "neighbours"
for ((i = 0; i < rxe; ++i)); do # The ports, and their addresses, take a moment.
  for ((t = 0; t < 200; ++t)); do
    [[ $(cat "/sys/class/infiniband/rxe$i/ports/1/state" 2>/dev/null) == *ACTIVE ]] &&
      grep -q ':ffff:' "/sys/class/infiniband/rxe$i/ports/1/gids/1" 2>/dev/null && break
    sleep 0.05
  done
  ((t < 200)) || error "rxe$i does not become active"
done

ulimit -l unlimited
ulimit -n 65536
ulimit -c 0
mkfifo /run/out /run/err
bb cat /run/out >"$(port vm.out)" & out=$!
bb cat /run/err >"$(port vm.err)" & err=$!
echo "up $(cut -d' ' -f1 /proc/uptime)" >&8
cd "$cwd" 2>/dev/null || cd / || error "cd /"
begun=$SECONDS
(
  exec 8>&- </dev/null >/run/out 2>/run/err
  exec timeout -k 5 "$limit" "${command[@]}"
)
status=$?
echo "done $(cut -d' ' -f1 /proc/uptime)" >&8
((SECONDS - begun < limit)) || [[ $status != @(124|137) ]] || echo expired >&8
# All that was written comes through the pipes, once what the command left running is gone with its ends
# of them.
for ((t = 0; t < 200; ++t)); do
  for one in /proc/[1-9]*; do
    [[ ${one#/proc/} == @($$|$out|$err) ]] || kill -KILL "${one#/proc/}" 2>/dev/null
  done
  kill -0 "$out" 2>/dev/null || kill -0 "$err" 2>/dev/null || break
  sleep 0.05
done
echo "exit $status" >&8
halt
