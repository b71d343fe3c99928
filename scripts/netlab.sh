#!/usr/bin/env bash
# Hosts to try several-host training on one machine: network namespaces on a bridge, each with one shaped link. Needs root, ip and tc.
#   netlab.sh up N RATE|none   N hosts 10.77.0.1 ..., each sending at most at RATE (tc's words: 1gbit, 100mbit)
#   netlab.sh rate RATE|none   another rate for all
#   netlab.sh run CMD...       CMD as RANKS_PER_HOST (1) ranks on every host, with the variables of torchrun; then what each host sent
#   netlab.sh exec I CMD...    CMD on host I (from 0)
#   netlab.sh cut I, mend I    take the cable of host I out, put it back
#   netlab.sh down             remove everything
# They share this machine's files, name and cores. NETLAB names the lab (lab): two labs can stand side by side.
set -euo pipefail
lab=${NETLAB:-lab}
bridge=${lab}bridge

hosts() { ip netns list | awk '{print $1}' | grep -xE "$lab[0-9]+" | sort -V; }
usage() { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 64; }

shape() {  # HOST RATE: what it sends; the burst that passes at once after a pause is small next to any collective
  local tc=(ip netns exec "$1" tc)
  "${tc[@]}" qdisc del dev eth0 root 2>/dev/null || true
  [ "$2" != none ] || return 0
  "${tc[@]}" qdisc add dev eth0 root handle 1: htb default 1
  "${tc[@]}" class add dev eth0 parent 1: classid 1:1 htb rate "$2" burst 16k cburst 16k quantum 60000
}

up() {
  [ -z "$(hosts)" ] || { echo "netlab.sh: the lab is up; netlab.sh down first" >&2; exit 78; }
  ip netns add "$bridge"
  ip netns exec "$bridge" ip link add "$bridge" type bridge
  ip netns exec "$bridge" ip link set "$bridge" up
  for ((i = 0; i < $1; i++)); do
    ip netns add "$lab$i"
    ip link add "port$i" netns "$bridge" type veth peer name eth0 netns "$lab$i"
    ip netns exec "$bridge" ip link set "port$i" master "$bridge" up
    # bbr paces by an estimate that shaping misleads.
    ip netns exec "$lab$i" sh -c 'echo cubic >/proc/sys/net/ipv4/tcp_congestion_control' 2>/dev/null || true
    ip netns exec "$lab$i" ip link set lo up
    ip netns exec "$lab$i" ip addr add "10.77.0.$((i + 1))/24" dev eth0
    ip netns exec "$lab$i" ip link set eth0 up
    shape "$lab$i" "$2"
  done
}

sent() { ip netns exec "$1" cat /sys/class/net/eth0/statistics/tx_bytes; }

run() {
  local names=() pids=() before=() code=0 rank=0 one world local each=${RANKS_PER_HOST:-1}
  mapfile -t names < <(hosts)
  [ "${#names[@]}" -gt 0 ] || { echo "netlab.sh: no lab; netlab.sh up first" >&2; exit 78; }
  world=$((each * ${#names[@]}))
  for one in "${names[@]}"; do before+=("$(sent "$one")"); done
  for one in "${names[@]}"; do
    for ((local = 0; local < each; local++)); do
      RANK=$rank WORLD_SIZE=$world LOCAL_RANK=$local LOCAL_WORLD_SIZE=$each MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 \
        ip netns exec "$one" "$@" &
      pids+=($!)
      rank=$((rank + 1))
    done
  done
  trap 'kill "${pids[@]}" 2>/dev/null || true' INT TERM
  for rank in "${!pids[@]}"; do
    wait "${pids[$rank]}" || { code=$?; echo "netlab.sh: rank $rank: exit $code" >&2; }
  done
  for one in "${!names[@]}"; do
    echo "netlab.sh: host $one sent $(($(sent "${names[$one]}") - before[one])) bytes through eth0" >&2
  done
  return "$code"
}

down() {
  local one
  for one in $(hosts) $(ip netns list | awk '{print $1}' | grep -xF "$bridge"); do ip netns del "$one"; done
}

command=${1:-}
shift || true
case "$command" in
  up) [ $# = 2 ] || usage; up "$@" ;;
  rate) [ $# = 1 ] || usage; for one in $(hosts); do shape "$one" "$1"; done ;;
  run) [ $# -ge 1 ] || usage; run "$@" ;;
  exec) [ $# -ge 2 ] || usage; one=$lab$1; shift; exec ip netns exec "$one" "$@" ;;
  cut) [ $# = 1 ] || usage; ip netns exec "$bridge" ip link set "port$1" down ;;
  mend) [ $# = 1 ] || usage; ip netns exec "$bridge" ip link set "port$1" up ;;
  down) down ;;
  *) usage ;;
esac
