package outbox

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/natsserver"
)

// The server goes away while the relay waits for its answer. The relay goes on, and ends only if its connection is
// closed for good.
func TestRelayOutlivesALostConnection(t *testing.T) {
	t.Parallel()
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var isWaiting atomic.Bool
	go breakAtPing(listener, server.Host(), &isWaiting)
	nc, err := Connect(strings.Replace(server.URL(), server.Host(), listener.Addr().String(), 1))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	isWaiting.Store(true)
	err = nc.FlushTimeout(10 * time.Second)
	if !errors.Is(err, nats.ErrConnectionClosed) {
		t.Fatalf("the flush failed with %v, want the error of a lost connection", err)
	}
	r := &Relay{config: Config{NATS: nc}}
	if explained := r.explain(err); isFinal(explained) {
		t.Errorf("while the client connects again the relay ends with %v", explained)
	}
	nc.Close()
	if explained := r.explain(err); !isFinal(explained) {
		t.Errorf("after the connection was closed the relay goes on with %v", explained)
	}
}

// breakAtPing passes one connection on to a server, until the client sends a PING that it waits for.
func breakAtPing(listener net.Listener, address string, isWaiting *atomic.Bool) {
	client, err := listener.Accept()
	if err != nil {
		return
	}
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(client, server) }()
	for buffer := make([]byte, 4096); ; {
		n, err := client.Read(buffer)
		if err != nil || isWaiting.Load() && bytes.Contains(buffer[:n], []byte("PING\r\n")) {
			return
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}
