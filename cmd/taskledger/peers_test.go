package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/internal/natsclient"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/reserve"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

var allFaults = flag.Bool("peers", false, "in TestPeers pause the leader and cut it off, too: two minutes")

var cluster = ledger.MustKind[int]("cluster.count")

// Three serve with --peers are one cluster. A worker that has DATABASE_URL alone goes on while one of them is killed,
// paused or cut off from the others, and each task has one effect. Before it one serve was alone, and the stream is
// made anew. A serve with other peers stands by, and logs it.
func TestPeers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc, and all addresses of 127.0.0.0/8")
	}
	if os.Getenv(envNATSURL) != "" {
		t.Skip(envNATSURL + " is set")
	}
	t.Parallel()
	p := newPeers(t)
	alone := p.start(0, p.dirs[0])
	stop := p.work()
	p.awaitProgress("one server")
	p.end(alone, syscall.SIGTERM)
	for i := range p.members {
		p.members[i] = p.start(i, p.dirs[i], p.flags(i)...)
	}
	p.awaitCurrent()
	p.awaitProgress("a cluster")

	other := p.start(3, t.TempDir())
	p.await("the other serve to log why it stands by", func() error {
		if text := other.log.String(); !strings.Contains(text, "runs with other peers") {
			return fmt.Errorf("logged %s", text)
		}
		return nil
	})
	p.end(other, syscall.SIGTERM)

	i := p.leader()
	p.end(p.members[i], syscall.SIGKILL)
	p.awaitProgress("the leader is killed")
	p.members[i] = p.start(i, p.dirs[i], p.flags(i)...)
	p.awaitCurrent()

	if *allFaults {
		p.pauseAndCut()
	}
	p.awaitProgress("the cluster is whole")
	p.check(stop())
}

// pauseAndCut pauses the leader of the stream, and then cuts one off.
func (p *peers) pauseAndCut() {
	p.t.Helper()
	i := p.leader()
	p.signal(p.members[i], syscall.SIGSTOP)
	p.awaitProgress("the leader is paused")
	p.signal(p.members[i], syscall.SIGCONT)
	p.awaitCurrent()

	p.cut(p.leader())
	p.awaitProgress("the leader is cut off from its peers")
	p.cut(-1)
	p.awaitCurrent()
}

// peers is a cluster whose connections between members pass proxies.
type peers struct {
	t       *testing.T
	db      *pgxpool.Pool
	binary  string
	members [3]*serveProcess
	dirs    [3]string
	listed  [3]string // the proxies
	own     [3]string // where members listen

	mu      sync.Mutex
	isCut   int // the member that is cut off, or -1
	proxied map[net.Conn]struct{}
}

// serveProcess is one process of serve.
type serveProcess struct {
	*exec.Cmd
	log   *serveLog
	ended chan struct{}
}

type serveLog struct {
	mu   sync.Mutex
	text bytes.Buffer
	to   io.Writer
}

func (l *serveLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.to.Write(p)
	return l.text.Write(p)
}

func (l *serveLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newPeers(t *testing.T) *peers {
	t.Helper()
	p := &peers{
		t: t, db: ledgertest.Pool(t, ledgertest.App, "relay", "operator"), isCut: -1,
		binary: filepath.Join(t.TempDir(), "taskledger"), proxied: make(map[net.Conn]struct{}),
	}
	if out, err := exec.Command("go", "build", "-o", p.binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ledgertest.ExecAsOwner(t, p.db, `
		create table effect (biz_id text not null); grant all on effect to public`)
	for i := range p.members {
		host := fmt.Sprintf("127.0.0.%d", i+1)
		port, err := reserve.Port()
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		p.dirs[i], p.listed[i], p.own[i] = t.TempDir(), l.Addr().String(), fmt.Sprintf("%s:%d", host, port)
		go p.proxy(l, i)
	}
	return p
}

func (p *peers) flags(i int) []string {
	host, _, _ := net.SplitHostPort(p.own[i])
	return []string{"--peers", strings.Join(p.listed[:], ","), "--cluster-listen", p.own[i], "--nats-listen", host}
}

func (p *peers) start(i int, dir string, flags ...string) *serveProcess {
	p.t.Helper()
	s := &serveProcess{log: &serveLog{to: p.t.Output()}, ended: make(chan struct{})}
	s.Cmd = exec.Command(p.binary, append([]string{"serve", "--data-dir", dir,
		"--database-url", ledgertest.URLAs(p.t, p.db.Config().ConnString(), "relay")}, flags...)...)
	s.Stdout, s.Stderr = s.log, s.log
	if err := s.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		_ = s.Wait()
	}()
	p.t.Cleanup(func() {
		_ = s.Process.Kill()
		<-s.ended
	})
	return s
}

func (p *peers) signal(s *serveProcess, signal syscall.Signal) {
	p.t.Helper()
	if err := s.Process.Signal(signal); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peers) end(s *serveProcess, signal syscall.Signal) {
	p.t.Helper()
	p.signal(s, signal)
	<-s.ended
}

// work enqueues and works on tasks until stop is called, which returns how many were enqueued.
func (p *peers) work() (stop func() int) {
	client, err := taskledger.Open(p.t.Context(), taskledger.Options{
		DatabaseURL: ledgertest.URLAs(p.t, p.db.Config().ConnString(), ledgertest.App),
	})
	if err != nil {
		p.t.Fatal(err)
	}
	handle := func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ int) error {
		_, err := tx.Exec(ctx, "insert into effect (biz_id) values ($1)", string(job.BizID))
		return err
	}
	pool, err := client.Worker(workers.Handle(cluster, handle, &workers.KindConfig{Slots: 4}))
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	enqueueing, stopEnqueueing := context.WithCancel(ctx)
	ended, enqueued := make(chan error, 1), make(chan int, 1)
	go func() { ended <- pool.Run(ctx) }()
	go func() {
		n := 0
		defer func() { enqueued <- n }()
		for ; enqueueing.Err() == nil; n++ {
			if _, err := cluster.Enqueue(ctx, client.DB, ledger.BizID(strconv.Itoa(n)), n, nil); err != nil {
				p.t.Error(err)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	p.t.Cleanup(func() {
		cancel()
		<-ended
		client.Close()
	})
	return func() int {
		stopEnqueueing()
		return <-enqueued
	}
}

func (p *peers) await(what string, ok func() error) {
	p.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("waited for %s: %v", what, err)
		}
	}
}

func (p *peers) effects() (n, distinct int, err error) {
	err = p.db.QueryRow(p.t.Context(), "select count(*), count(distinct biz_id) from effect").Scan(&n, &distinct)
	return n, distinct, err
}

// awaitProgress waits until a task has an effect that was enqueued from now on.
func (p *peers) awaitProgress(when string) {
	p.t.Helper()
	begun := time.Now()
	last := ""
	if err := p.db.QueryRow(p.t.Context(), `
		select coalesce(max(biz_id::integer), 0)::text from taskledger.event where kind = 'cluster.count'`).
		Scan(&last); err != nil {
		p.t.Fatal(err)
	}
	n, err := strconv.Atoi(last)
	if err != nil {
		p.t.Fatal(err)
	}
	p.await("progress: "+when, func() error {
		has := false
		err := p.db.QueryRow(p.t.Context(), "select exists (select from effect where biz_id = $1)",
			strconv.Itoa(n+50)).Scan(&has)
		if err == nil && !has {
			err = fmt.Errorf("task %d has no effect", n+50)
		}
		return err
	})
	p.t.Logf("%s: work went on within %s", when, time.Since(begun).Round(time.Millisecond))
}

// info returns the state of the stream.
func (p *peers) info() (*jetstream.StreamInfo, error) {
	nc, err := natsclient.Connect(p.db, natsconfig.Relay)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Second)
	defer cancel()
	s, err := js.Stream(ctx, stream.Name)
	if err != nil {
		return nil, err
	}
	return s.CachedInfo(), nil
}

// awaitCurrent waits until all three members have every message.
func (p *peers) awaitCurrent() {
	p.t.Helper()
	defer func(begun time.Time) { p.t.Logf("current after %s", time.Since(begun).Round(time.Millisecond)) }(time.Now())
	p.await("three members that have the whole stream", func() error {
		info, err := p.info()
		if err != nil {
			return err
		}
		if info.Config.Replicas != 3 || info.Cluster == nil || info.Cluster.Leader == "" ||
			len(info.Cluster.Replicas) != 2 {
			return fmt.Errorf("replicas %d, cluster %+v", info.Config.Replicas, info.Cluster)
		}
		for _, r := range info.Cluster.Replicas {
			if !r.Current || r.Offline {
				return fmt.Errorf("%s is behind: %+v", r.Name, r)
			}
		}
		return nil
	})
}

// leader returns the member that leads the stream.
func (p *peers) leader() int {
	p.t.Helper()
	i := -1
	p.await("a leader of the stream", func() error {
		info, err := p.info()
		if err != nil {
			return err
		}
		if i = slices.Index(p.listed[:], info.Cluster.Leader); i < 0 {
			return fmt.Errorf("the leader is %q", info.Cluster.Leader)
		}
		return nil
	})
	return i
}

// check waits until all tasks have an effect, and checks that none has two.
func (p *peers) check(tasks int) {
	p.t.Helper()
	p.await("every task to have an effect", func() error {
		n, distinct, err := p.effects()
		if err == nil && (distinct < tasks || n < tasks) {
			err = fmt.Errorf("%d of %d tasks", distinct, tasks)
		}
		return err
	})
	if n, distinct, err := p.effects(); err != nil || n != tasks || distinct != tasks {
		p.t.Errorf("%d effects of %d tasks, want one each of %d: %v", n, distinct, tasks, err)
	}
}

// proxy passes connections to a member on, unless one of the two ends is cut off.
func (p *peers) proxy(l net.Listener, to int) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		go p.pass(from, to)
	}
}

func (p *peers) pass(from net.Conn, to int) {
	defer func() { _ = from.Close() }()
	member := p.memberOf(from)
	p.mu.Lock()
	isCut := p.isCut >= 0 && (p.isCut == to || p.isCut == member || member < 0)
	if !isCut {
		p.proxied[from] = struct{}{}
	}
	p.mu.Unlock()
	if isCut {
		return
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.proxied, from)
	}()
	onward, err := net.Dial("tcp", p.own[to])
	if err != nil {
		return
	}
	defer func() { _ = onward.Close() }()
	go func() {
		_, _ = io.Copy(from, onward)
		_ = from.Close()
	}()
	_, _ = io.Copy(onward, from)
}

// cut ends all connections between members, and refuses those of one of them from now on; -1: of none.
func (p *peers) cut(member int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = member
	for c := range p.proxied {
		_ = c.Close()
	}
}

// memberOf returns the member that has opened a connection, or -1: the one with a socket on its remote port.
func (p *peers) memberOf(c net.Conn) int {
	table, _ := os.ReadFile("/proc/net/tcp")
	local, remote, inode := hexAddress(c.RemoteAddr()), hexAddress(c.LocalAddr()), ""
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 9 && f[1] == local && f[2] == remote {
			inode = f[9]
		}
	}
	for i, m := range p.members {
		if m == nil {
			continue
		}
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", m.Process.Pid))
		for _, file := range files {
			if target, _ := os.Readlink(file); inode != "" && target == "socket:["+inode+"]" {
				return i
			}
		}
	}
	return -1
}

// hexAddress returns an address as /proc/net/tcp has it.
func hexAddress(a net.Addr) string {
	tcp := a.(*net.TCPAddr)
	return fmt.Sprintf("%08X:%04X", binary.LittleEndian.Uint32(tcp.IP.To4()), tcp.Port)
}
