# Sourced in the guest before the command: makes the RDMA devices of the setup $1, and exports their names and
# addresses to the command. README.md describes each setup.

ulimit -l unlimited
PATH=$PATH:/usr/sbin:/sbin
unset "${!HAWSER_RDMA_@}"  # The caller's variables describe its own devices.

# interface <name> <address>. 4200 leaves room for a path MTU of 4096.
interface() {
  ip link set "$1" mtu 4200 up
  ip addr add "$2/24" dev "$1"
}

# device <name> <rxe or siw> <interface>
device() {
  rdma link add "$1" type "$2" netdev "$3" || exit 125
}

# The port of a TCP connection that has ended is free at once. siw takes its ports from TCP, while the connection manager
# that chooses one looks only at those of RDMA: a connect, or a listener at any port, fails with EADDRINUSE by chance.
[[ $1 != siw* ]] || echo 0 >/proc/sys/net/ipv4/tcp_max_tw_buckets

case $1 in
  rxe | siw)
    interface dummy0 10.0.0.1  # The driver makes dummy0 when it is loaded.
    ip -6 addr add fd00::1/64 dev dummy0 nodad
    device "${1}0" "$1" dummy0
    export HAWSER_RDMA_DEVICE=${1}0 HAWSER_RDMA_ADDRESS=10.0.0.1 HAWSER_RDMA_ADDRESS6=fd00::1
    ;;
  rxe_pair)
    ip link add veth0 type veth peer name veth1
    interface veth0 10.0.0.1
    interface veth1 10.0.0.2
    # Both ends have addresses of this host. These settings make the kernel send between them over the link.
    for end in veth0 veth1; do
      echo 1 >/proc/sys/net/ipv4/conf/$end/accept_local
      echo 1 >/proc/sys/net/ipv4/conf/$end/arp_ignore
      echo 2 >/proc/sys/net/ipv4/conf/$end/arp_announce
      echo 0 >/proc/sys/net/ipv4/conf/$end/rp_filter
    done
    echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
    # Sets the neighbours for the whole run, also while the link is cut. ARP for the host's own address is
    # answered late or not at all; then the connection manager loses its first message, and resends it only
    # after 4 s.
    ip neighbour replace 10.0.0.2 lladdr "$(</sys/class/net/veth1/address)" dev veth0 nud permanent
    ip neighbour replace 10.0.0.1 lladdr "$(</sys/class/net/veth0/address)" dev veth1 nud permanent
    device rxe0 rxe veth0
    device rxe1 rxe veth1
    export HAWSER_RDMA_DEVICE=rxe0 HAWSER_RDMA_ADDRESS=10.0.0.1
    export HAWSER_RDMA_PEER_DEVICE=rxe1 HAWSER_RDMA_PEER_ADDRESS=10.0.0.2
    ;;
  rxe_link | siw_link)
    interface eth0 "10.0.0.$((HAWSER_NODE + 1))"
    device "${1%_link}0" "${1%_link}" eth0
    export HAWSER_RDMA_DEVICE=${1%_link}0 HAWSER_RDMA_ADDRESS=10.0.0.$((HAWSER_NODE + 1))
    export HAWSER_RDMA_PEER_ADDRESS=10.0.0.$((2 - HAWSER_NODE))
    ;;
  none) ;;
  *)
    echo "setup.sh: no setup '$1'; there are rxe, rxe_pair, rxe_link, siw, siw_link and none" >&2
    exit 125
    ;;
esac
