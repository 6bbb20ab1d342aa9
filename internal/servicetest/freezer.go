package servicetest

import (
	"context"
	"net"
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
	f := Freezer{frozen: make(chan struct{}), thawed: make(chan struct{})}
	f.Freeze = sync.OnceFunc(func() { close(f.frozen) })
	f.Thaw = sync.OnceFunc(func() { close(f.thawed) })
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
