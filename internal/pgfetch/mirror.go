package pgfetch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// maxArchive is more than any archive has, in bytes.
const maxArchive = 200 << 20

// answerTimeout bounds how long the repository may take to begin an answer, and to continue it.
const answerTimeout = 30 * time.Second

var errStalled = fmt.Errorf("no more bytes for %s", answerTimeout)

// mirror is an HTTP server of loopback that hands out one archive of a repository after it has checked it. It is safe
// for concurrent use.
type mirror struct {
	// Constant.
	ctx    context.Context
	config Config
	file   string // where the archive is stored
	server *http.Server
	host   string

	mu  sync.Mutex
	err error // why the archive was not handed out
}

func newMirror(ctx context.Context, c Config, file string) (*mirror, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &mirror{ctx: ctx, config: c, file: file, host: l.Addr().String()}
	m.server = &http.Server{Handler: m, ReadHeaderTimeout: answerTimeout}
	go func() { _ = m.server.Serve(l) }() // until close
	return m, nil
}

func (m *mirror) address() string { return "http://" + m.host }

func (m *mirror) close() { _ = m.server.Close() }

func (m *mirror) failure() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// ServeHTTP answers a request for the archive or its checksum.
func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, ".sha256") {
		_, _ = io.WriteString(w, m.config.Archive.SHA256)
		return
	}
	if err := m.download(r.URL.Path); err != nil {
		m.mu.Lock()
		m.err = err
		m.mu.Unlock()
		http.Error(w, "not available", http.StatusBadGateway)
		return
	}
	http.ServeFile(w, r, m.file)
}

// download stores the archive of a path of the repository, if it is the right one.
func (m *mirror) download(path string) (err error) {
	address := m.config.Repository + path
	ctx, cancel := context.WithCancelCause(m.ctx)
	defer cancel(nil)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = answerTimeout
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", address, response.Status)
	}
	file, err := os.OpenFile(m.file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	hash := sha256.New()
	body := &counter{from: io.LimitReader(response.Body, maxArchive), total: response.ContentLength,
		show: m.config.Progress, stalled: time.AfterFunc(answerTimeout, func() { cancel(errStalled) })}
	defer body.stalled.Stop()
	if _, err := io.Copy(io.MultiWriter(file, hash), body); err != nil {
		return fmt.Errorf("fetch %s: %w", address, cmp.Or(context.Cause(ctx), err))
	}
	if have := hex.EncodeToString(hash.Sum(nil)); have != m.config.Archive.SHA256 {
		return fmt.Errorf("%s is not the archive that is expected: its SHA-256 is %s, not %s", address, have,
			m.config.Archive.SHA256)
	}
	return nil
}

// counter reports how much of a body has been read.
type counter struct {
	from        io.Reader
	done, total int64
	show        func(done, total int64)
	stalled     *time.Timer // ends a body of which nothing is read
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.done += int64(n)
	if n > 0 {
		c.stalled.Reset(answerTimeout)
	}
	if c.show != nil && n > 0 {
		c.show(c.done, c.total)
	}
	return n, err
}
