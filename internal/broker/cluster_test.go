package broker_test

import (
	"fmt"
	"testing"

	"github.com/taskledger/taskledger/internal/broker"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/reserve"
)

// peersOn returns the addresses of peers on loopback.
func peersOn(t *testing.T) (peers []string) {
	t.Helper()
	for range 3 {
		port, err := reserve.Port()
		if err != nil {
			t.Fatal(err)
		}
		peers = append(peers, fmt.Sprintf("127.0.0.1:%d", port))
	}
	return peers
}

// Three members are one cluster: JetStream answers each client, also after a member has ended and another one runs in
// its place. A server with other peers runs only after they have ended, and they do not run beside it.
func TestCluster(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	alone := d.run(broker.Config{})
	first := d.found("worker", natsconfig.Worker)
	peers := peersOn(t)
	var stops []func()
	for _, self := range peers {
		stops = append(stops, d.run(broker.Config{Peers: peers, ClusterListen: self}))
	}
	if f := d.found("worker", natsconfig.Worker); f != first {
		t.Errorf("found %s beside the server that is alone", f.Address)
	}
	alone()
	nc := d.connect("relay", natsconfig.Relay)
	d.awaitMembers(3)
	later := d.run(broker.Config{})
	stops[0]()
	d.awaitMembers(2)
	d.answers(nc)
	d.connect("operator", natsconfig.Operator)
	stops[0] = d.run(broker.Config{Peers: peers, ClusterListen: peers[0]})
	d.awaitMembers(3)
	d.answers(nc)
	for _, stop := range stops {
		stop()
	}
	d.answers(nc) // of the server that is alone and stood by
	later()
}

// awaitMembers waits until so many servers run.
func (d *database) awaitMembers(want int) {
	d.t.Helper()
	d.await("the members of the cluster", func() error {
		n := 0
		err := d.db.QueryRow(d.t.Context(), `
			select count(*) from taskledger.broker b
			 where b.is_alive and b.is_here and b.address is not null and b.member <> ''`).Scan(&n)
		if err == nil && n != want {
			err = fmt.Errorf("%d run", n)
		}
		return err
	})
}

// Members that disagree in their lists run one server each and join none. Each logs its list and another one, and they
// are one cluster when they agree.
func TestPeersThatDisagree(t *testing.T) {
	t.Parallel()
	d, all := newDatabase(t), append(peersOn(t), peersOn(t)...)
	lists := [][]string{{all[0], all[1], all[2]}, {all[0], all[1], all[3]}, {all[0], all[2], all[4]}}
	var stops []func()
	for i, self := range []string{all[0], all[1], all[2]} {
		log := newServerLog(t)
		stops = append(stops, d.run(broker.Config{Peers: lists[i], ClusterListen: self, Logger: log.logger()}))
		if i == 0 {
			d.awaitLog(log, "waits for most servers of the cluster: start the others with the same --peers")
			continue
		}
		d.awaitLog(log, "another server has other peers: start all processes with the same --peers")
		d.awaitLog(log, "other_peers=")
	}
	d.awaitMembers(0)
	for _, stop := range stops {
		stop()
	}
	for _, self := range lists[0] {
		d.run(broker.Config{Peers: lists[0], ClusterListen: self})
	}
	d.awaitMembers(3)
	d.connect("worker", natsconfig.Worker)
}
