package post_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/post"
)

const timeout = 500 * time.Millisecond

func loopback(t *testing.T, isAllowed bool) *post.Client {
	t.Helper()
	c := post.Config{Timeout: timeout}
	if isAllowed {
		c.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}
	return post.New(c)
}

func send(t *testing.T, c *post.Client, address string) error {
	t.Helper()
	return c.Send(t.Context(), address, http.Header{}, []byte("{}"))
}

// counting answers each request with f, and counts them.
func counting(t *testing.T, f http.HandlerFunc) (address string, requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body) // the server notices the end of a connection once the body is read
		f(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, requests
}

func ok(http.ResponseWriter, *http.Request) {}

func wantRefused(t *testing.T, err error) {
	t.Helper()
	var refused *post.AddressError
	if !errors.As(err, &refused) {
		t.Errorf("%v, want *post.AddressError", err)
	}
}

// A connection to an address that is not public is refused, however the URL names it, unless it is allowed.
func TestAddressesAreChecked(t *testing.T) {
	t.Parallel()
	address, requests := counting(t, ok)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "10.0.0.1", "172.16.9.9",
		"192.168.1.1", "169.254.169.254", "100.64.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "[::1]", "[::]",
		"[fe80::1]", "[fd00::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[ff02::1]", "[::127.0.0.1]",
		"[::ffff:0:127.0.0.1]", "[5f00::1]", "[3fff::1]", "192.88.99.1"} {
		wantRefused(t, send(t, loopback(t, false), "http://"+host+":"+port))
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
	if err := send(t, loopback(t, true), address); err != nil || requests.Load() != 1 {
		t.Errorf("an allowed address: %v", err)
	}
}

// resolver answers queries for IPv4 addresses, each with the next of the answers, the last one again and again.
type resolver struct {
	mu      sync.Mutex
	answers []netip.Addr
}

func (r *resolver) next() netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.answers[0]
	if len(r.answers) > 1 {
		r.answers = r.answers[1:]
	}
	return a
}

// start returns a resolver that queries r over UDP.
func (r *resolver) start(t *testing.T) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		query := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(query)
			if err != nil {
				return
			}
			if n > 12 {
				_, _ = server.WriteTo(r.answer(query[:n]), from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// answer returns the answer to a query by RFC 1035: the header, the question, and an address if it asks for IPv4.
func (r *resolver) answer(query []byte) []byte {
	end := 12 + bytes.IndexByte(query[12:], 0) + 5 // name, type and class
	question := query[12:end]
	isIPv4 := binary.BigEndian.Uint16(question[len(question)-4:]) == 1
	out := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
	if isIPv4 {
		out[7] = 1
		out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		out = append(out, r.next().AsSlice()...)
	}
	return out
}

// A name whose answer changes to a private address is refused at the connection that would be made there: nothing is
// checked before it.
func TestChangedAnswerOfDNS(t *testing.T) {
	t.Parallel()
	address, requests := counting(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
	})
	_, port, err := net.SplitHostPort(strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	allowed, private := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	dns := &resolver{answers: []netip.Addr{allowed, private}}
	c := post.New(post.Config{
		Timeout: 5 * time.Second, Allow: []netip.Prefix{netip.PrefixFrom(allowed, 32)},
		Resolver: dns.start(t),
	})
	if err := send(t, c, "http://rebind.example.:"+port); err != nil || requests.Load() != 1 {
		t.Fatalf("at first: %v", err)
	}
	err = send(t, c, "http://rebind.example.:"+port)
	wantRefused(t, err)
	if requests.Load() != 1 || !strings.Contains(err.Error(), "127.0.0.2") {
		t.Errorf("after the change: %v", err)
	}
}

// A redirect is an answer other than 2xx, and is not followed.
func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	inner, requests := counting(t, ok)
	outer, _ := counting(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inner, http.StatusTemporaryRedirect)
	})
	var status *post.StatusError
	if err := send(t, loopback(t, true), outer); !errors.As(err, &status) || status.Status != 307 {
		t.Errorf("%v", err)
	}
	if requests.Load() != 0 {
		t.Error("the redirect was followed")
	}
}

// A receiver that never answers, answers slowly, or answers with more than is read costs a bounded time and memory.
func TestHostileReceivers(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts and does not read
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	large := strings.Repeat("x", 64<<10)
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		status int // 0: another error; 200: none
	}{
		"waits":         {answer: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		"header":        {answer: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", large) }},
		"endless":       {answer: endless(http.StatusInternalServerError), status: 500},
		"endless is ok": {answer: endless(http.StatusOK), status: 200},
		"trickle": {answer: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte("x"))
				_ = http.NewResponseController(w).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		}, status: 502},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, _ := counting(t, test.answer)
			checkStatus(t, send(t, loopback(t, true), address), test.status)
		})
	}
	checkStatus(t, send(t, loopback(t, true), "http://"+silent.Addr().String()), 0)
}

func endless(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		for {
			if _, err := io.WriteString(w, strings.Repeat("y", 1<<16)); err != nil {
				return
			}
		}
	}
}

func checkStatus(t *testing.T, err error, status int) {
	t.Helper()
	var refused *post.StatusError
	switch isStatus := errors.As(err, &refused); {
	case status == http.StatusOK && err != nil, status == 0 && (isStatus || err == nil):
		t.Errorf("%v", err)
	case status > http.StatusOK && (!isStatus || refused.Status != status || len(refused.Reply) > post.MaxReply):
		t.Errorf("%v, want status %d", err, status)
	}
}

// No error has the URL, whose path may be a secret.
func TestErrorsHaveNoURL(t *testing.T) {
	t.Parallel()
	address, _ := counting(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	for _, u := range []string{address + "/token", "http://127.0.0.1:1/token", "http://token:x/", "http://a b/token"} {
		if err := send(t, loopback(t, true), u); err == nil || strings.Contains(err.Error(), "token") &&
			!strings.Contains(u, "//token") {
			t.Errorf("%s: %v", u, err)
		}
	}
	var status *post.StatusError
	if err := send(t, loopback(t, true), address); !errors.As(err, &status) || status.RetryAfter != 7*time.Second {
		t.Errorf("%v", err)
	}
}
