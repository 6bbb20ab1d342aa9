package broker

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/taskledger/taskledger/internal/natsserver"
)

// defaultClusterPort is where a server listens for its peers.
const defaultClusterPort = "6222"

// clusterUser is the name under which the database stores the cluster's secret. It is not a NATS user.
const clusterUser = "cluster"

// cluster is a server's view of its cluster.
type cluster struct {
	self  string   // this member
	peers []string // all members, HOST:PORT, in order
	host  string   // where it listens for the others; "": on every address
	port  int      // the same
}

// cluster returns the cluster of the configuration; nil: the server is alone.
func (c Config) cluster(a addresses) (*cluster, error) {
	if len(c.Peers) == 0 {
		if c.ClusterListen != "" {
			return nil, errors.New("an address for peers needs peers: set --peers")
		}
		return nil, nil
	}
	k := &cluster{}
	for _, peer := range c.Peers {
		host, port := split(strings.ToLower(strings.TrimSpace(peer)))
		if port == "" {
			port = defaultClusterPort
		}
		if _, err := parsePort(port); host == "" || strings.ContainsAny(host, "/@ ") || err != nil {
			return nil, fmt.Errorf("each of the peers must be HOST:PORT or HOST, got %q", peer)
		}
		k.peers = append(k.peers, net.JoinHostPort(host, port))
	}
	slices.Sort(k.peers)
	if distinct := slices.Compact(slices.Clone(k.peers)); len(distinct) < len(k.peers) {
		return nil, fmt.Errorf("each of the peers must be named once, got %s", k)
	}
	if len(k.peers) != 3 && len(k.peers) != 5 {
		return nil, fmt.Errorf("there must be 3 or 5 peers, this process among them, got %d: "+
			"2 or 4 survive no more losses than 1 or 3", len(k.peers))
	}
	var port string
	if k.host, port = split(c.ClusterListen); c.ClusterListen == "" {
		k.host = a.host
	}
	if err := k.find(a.advertised, port); err != nil {
		return nil, err
	}
	if port == "" {
		_, port, _ = net.SplitHostPort(k.self)
	}
	var err error
	if k.port, err = parsePort(port); err != nil {
		return nil, fmt.Errorf("ClusterListen must be HOST:PORT or HOST, got %q", c.ClusterListen)
	}
	return k, nil
}

// find sets self to the peer on a host. If several peers are on it, find chooses the peer with the port.
func (k *cluster) find(host, port string) error {
	var found []string
	for _, peer := range k.peers {
		if h, _, _ := net.SplitHostPort(peer); h == strings.ToLower(host) {
			found = append(found, peer)
		}
	}
	if own := net.JoinHostPort(strings.ToLower(host), port); len(found) > 1 && slices.Contains(found, own) {
		found = []string{own}
	}
	switch len(found) {
	case 0:
		return fmt.Errorf("the peers must name this process, which clients find at %s, got %s: "+
			"set --advertise to the host that --peers has for it", host, k)
	case 1:
		k.self = found[0]
		return nil
	}
	return fmt.Errorf("several of the peers are on %s, got %s: set --cluster-listen to this process's own", host, k)
}

// String returns all members. Two processes with the same text are in the same cluster.
func (k *cluster) String() string {
	if k == nil {
		return ""
	}
	return strings.Join(k.peers, ",")
}

// member returns the name of this member, or "" for a server that is alone.
func (k *cluster) member() string {
	if k == nil {
		return ""
	}
	return k.self
}

// server returns the configuration of a member. All members prove with a key that they know the secret.
func (k *cluster) server(secret string) (_ *natsserver.Cluster, err error) {
	n := &natsserver.Cluster{Self: k.self, Host: k.host, Port: k.port, Peers: k.peers}
	// Members with other peers have another name here, and NATS refuses to join clusters whose names differ.
	sum := sha256.Sum256([]byte(k.String()))
	n.Name = "taskledger-" + hex.EncodeToString(sum[:6])
	n.Secure, err = secureCluster(secret)
	return n, err
}

// secureCluster returns TLS for both ends of a connection between members. The database's secret is the seed of a key.
// Each end proves to the other that it knows the key.
func secureCluster(secret string) (*tls.Config, error) {
	seed := sha256.Sum256([]byte("taskledger NATS cluster: " + secret))
	key := ed25519.NewKeyFromSeed(seed[:])
	public := key.Public().(ed25519.PublicKey)
	certificate, _, err := newCertificate(key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13,
		ClientAuth: tls.RequireAnyClientCert,
		// The key is compared instead of a chain and a name.
		InsecureSkipVerify: true, //nolint:gosec // see VerifyConnection
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 || !public.Equal(s.PeerCertificates[0].PublicKey) {
				return errors.New("the other server uses the secret of another database")
			}
			return nil
		},
	}, nil
}

func parsePort(text string) (int, error) {
	port, err := strconv.Atoi(text)
	if err == nil && (port < 1 || port > 65535) {
		err = strconv.ErrRange
	}
	return port, err
}

// newSecret returns a secret of a cluster.
func newSecret() string { return rand.Text() + rand.Text() }
