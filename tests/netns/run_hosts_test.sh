#!/usr/bin/env bash
# tutti run --hosts: ranks on several hosts as if they were on one. Hosts are namespaces; in place of
# ssh a script enters them.
set -euo pipefail
netns=$TEST_SOURCE_DIR/scripts/netns
tutti=$TEST_BUILD_DIR/tools/tutti
work=$(mktemp -d)
reason=$("$netns" check 2>&1) || { echo "skipped: $reason"; exit 77; }
export TUTTI_NETNS=tuttihosts$$
trap '"$netns" down; rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $*" >&2
  tail -n 20 "$work"/out "$work"/err >&2
  exit 1
}
cat >"$work/rsh" <<END
#!/bin/bash
# rsh HOST COMMAND...: with a clean environment, as over ssh.
host=\${1##*.}
shift
echo "\$*" >>$work/commands
exec env -i PATH="\$PATH" TUTTI_NETNS=$TUTTI_NETNS $netns exec \$((host - 1)) -- "\$@"
END
chmod +x "$work/rsh"
export TUTTI_RSH=$work/rsh
"$netns" up 3

# run EXIT_CODE ARGUMENTS...: of tutti run.
run() {
  local wanted=$1 status=0
  shift
  timeout 60 "$tutti" run "$@" >"$work/out" 2>"$work/err" || status=$?
  [ "$status" = "$wanted" ] || fail "tutti run $* ended with $status, not $wanted"
}

echo "== ranks in order, with their places, our environment and directory"
cd "$work"
# shellcheck disable=SC2016 # The ranks are to expand them.
MINE="a b" run 0 --hosts 10.77.0.1:2,10.77.0.2,10.77.0.3:2 -n 4 -- sh -c \
  'echo "$(hostname) $TUTTI_RANK/$TUTTI_RANK_COUNT $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR $MINE $PWD"'
wanted=$(for line in "0 host0 0/4 0/2" "1 host0 1/4 1/2" "2 host1 2/4 0/1" "3 host2 3/4 0/1"; do
  echo "[${line%% *}] ${line#* } 10.77.0.1 a b $work"
done)
[ "$(sort out)" = "$wanted" ] || fail "ranks said: $(cat out)"

echo "== they meet, and reduce"
for transport in tcp ""; do
  TUTTI_TRANSPORT=$transport run 0 --no-prefix --hosts 10.77.0.1:2,10.77.0.2:2 -- \
    "$TEST_BUILD_DIR/perf/all_reduce_perf" -b 4 -e 64K -f 16 -n 2 -w 1 -c bits
  grep -q '^# Out of bounds values : 0 OK' out || fail "all_reduce"
done

echo "== the job's secret is alike on all ranks, and on no command line"
# shellcheck disable=SC2016
run 0 --no-prefix --hosts 10.77.0.1,10.77.0.2 -- sh -c 'echo $TUTTI_JOB $TUTTI_SECRET'
job=$(sort -u out)
[[ $job =~ ^hosts-[0-9a-f]{16}\ [0-9a-f]{64}$ ]] || fail "the job is '$job'"
[ "$(sort -u commands)" = "$tutti agent" ] || fail "commands: $(sort -u commands)"

echo "== a rank that fails ends all, and its exit code is ours"
# shellcheck disable=SC2016
run 7 --hosts 10.77.0.1,10.77.0.2:2 -- sh -c '[ $TUTTI_RANK != 2 ] || exit 7; exec sleep 1000'
grep -q "^tutti run: rank 2 (process [0-9]*) exited with code 7; ending the other ranks of this host" err ||
  fail "no word of rank 2"
grep -q "^tutti run: host 10.77.0.2 (process [0-9]*) exited with code 7; ending the other hosts" err ||
  fail "no word of the host"

# sleepers COUNT: until so many of our ranks run.
sleepers() {
  for ((i = 0; i < 1000; ++i)); do
    [ "$(pgrep -xfc "sleep 10$$" || true)" = "$1" ] && return
    sleep 0.02
  done
  ps -ef >>out
  fail "there are not $1 ranks"
}
# begin SCRIPT: three ranks in the background, their launcher is $launcher.
begin() {
  timeout -s KILL 60 "$tutti" run --hosts 10.77.0.1,10.77.0.2:2 -- sh -c "$1" >out 2>err &
  launcher=$!
  sleepers 3
  # timeout's child; that is who gets signals.
  launcher_itself=$(pgrep -P "$launcher")
}

echo "== signals come through"
begin "trap 'echo told; exit 3' USR1 INT; sleep 10$$ & wait; wait"
kill -INT "$launcher_itself"
status=0
wait "$launcher" || status=$?
[ "$status" = 3 ] || fail "exit code $status"
[ "$(grep -c told out)" -ge 1 ] || fail "nobody was told"
sleepers 0

echo "== a launcher that is killed leaves no rank behind"
begin "exec sleep 10$$"
kill -KILL "$launcher_itself"
wait "$launcher" 2>/dev/null || true
sleepers 0

# together NAME=VALUE...: a rank on each of two hosts, with the environment of some launcher; ? in it
# is the rank.
together() {
  local rank pids=()
  for rank in 0 1; do
    timeout 60 "$netns" exec "$rank" -- env "${@//\?/$rank}" "$reduce" -b 8 -e 8K -f 32 -n 2 -c bits \
      >"out.$rank" 2>&1 &
    pids+=($!)
  done
  for rank in 0 1; do wait "${pids[rank]}" || { cat out.*; fail "rank $rank with $*"; }; done
  grep -q '^# Out of bounds values : 0 OK' out.0 || { cat out.*; fail "all_reduce with $*"; }
}
reduce=$TEST_BUILD_DIR/perf/all_reduce_perf
echo "== what torchrun and srun would set"
together RANK=? WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 \
  TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0
together SLURM_PROCID=? SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_NODEID=? SLURM_JOB_ID=77 SLURM_STEP_ID=2 \
  SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE='1(x2)' SLURM_STEP_NODELIST=10.77.0.1,10.77.0.2

if command -v mpirun.openmpi >/dev/null; then
  echo "== mpirun of Open MPI"
  cat >shell_rsh <<END
#!/bin/bash
# As ssh: what follows the host is for a shell.
host=\${1##*.}
shift
exec env -i PATH="\$PATH" HOME=$work TUTTI_NETNS=$TUTTI_NETNS $netns exec \$((host - 1)) -- sh -c "\$*"
END
  chmod +x shell_rsh
  timeout 60 "$netns" exec 0 -- mpirun.openmpi --allow-run-as-root --mca plm_rsh_agent "$work/shell_rsh" \
    -H 10.77.0.1:2,10.77.0.2:2 -np 4 --oversubscribe -x TUTTI_RENDEZVOUS=10.77.0.1:29501 \
    "$reduce" -b 8 -e 8K -f 32 -n 2 -c bits >out 2>err || fail "mpirun"
  grep -q '^# Out of bounds values : 0 OK' out || fail "all_reduce under mpirun"
fi

echo "== what can't work is said"
run 2 --hosts 10.77.0.1:2 -n 3 -- true
grep -q "^tutti run: 3 ranks, but the hosts take 2" err || fail "too many ranks"
run 2 --hosts 'a b' -- true
grep -q "^tutti run: 'a b' is no host" err || fail "no host"
run 127 --hosts 10.77.0.1 --remote-tutti /nothing/tutti -- true
grep -q "host 10.77.0.1 (process [0-9]*) exited with code 127" err || fail "no tutti there"
run 127 --hosts 10.77.0.1 -- /nothing/there
grep -q "can't start rank 0: '/nothing/there': No such file" err || fail "no program there"
run 127 --hosts 10.77.0.1 --rsh /nothing/ssh -- true
grep -q "can't start host 10.77.0.1: '/nothing/ssh'" err || fail "no ssh"
echo "ok"
