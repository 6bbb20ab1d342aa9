package servicetest

import (
	"context"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Freezer connects a pool to the database until Freeze is called. Then its connections stay open and transfer nothing
// until Thaw is called.
type Freezer struct {
	frozen, thawed chan struct{}
	// Freeze and Thaw may be called more than once. Thaw is called after the test.
	Freeze, Thaw func()
}

// NewFreezer returns a freezer, and a pool like db whose connections it can freeze.
func NewFreezer(t testing.TB, db *pgxpool.Pool) (Freezer, *pgxpool.Pool) {
	t.Helper()
	f := newFreezer()
	config := db.Config()
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		server, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		client, ours := net.Pipe()
		go f.pump(ours, server)
		go f.pump(server, ours)
		return client, nil
	}
	pool := Try(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(pool.Close)
	t.Cleanup(f.Thaw) // before the pool is closed
	return f, pool
}

// NewFreezingProxy is [NewFreezer] for another process, or for NATS. It returns the URL of the server at a proxy whose
// connections the freezer can freeze.
func NewFreezingProxy(t testing.TB, address string) (Freezer, string) {
	t.Helper()
	target := Try(url.Parse(address))(t)
	listener := Try(net.Listen("tcp", "127.0.0.1:0"))(t)
	f, server := newFreezer(), target.Host
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			onward, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			go f.pump(onward, client)
			go f.pump(client, onward)
		}
	}()
	t.Cleanup(func() {
		f.Thaw()
		_ = listener.Close()
	})
	target.Host = listener.Addr().String()
	return f, target.String()
}

func newFreezer() Freezer {
	f := Freezer{frozen: make(chan struct{}), thawed: make(chan struct{})}
	f.Freeze = sync.OnceFunc(func() { close(f.frozen) })
	f.Thaw = sync.OnceFunc(func() { close(f.thawed) })
	return f
}

func (f Freezer) pump(to, from net.Conn) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-f.frozen:
			<-f.thawed
		default:
		}
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
