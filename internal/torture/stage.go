package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/reserve"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// cast is how many processes run each program.
var cast = []struct {
	program  string
	role     string // login
	count    int
	isPooled bool // connects through PgBouncer, if it is there
}{
	{"relay", "relay", 2, false},
	{"projector", "relay", 2, true},
	{"scheduler", "relay", 2, true},
	{"subscriber", "relay", 1, false},
	{"worker", "app", 3, true},
	{"producer", "producer", 2, true},
}

// stage contains everything that runs: servers, links and parts.
type stage struct {
	config
	dir       string
	disks     map[string]disk // of postgres, and of each node
	passwords natsconfig.Passwords

	db        *cluster
	pooler    *bouncer // nil: skipped
	toPrimary []*link  // redirected by a promotion
	nodes     []*process
	links     []*link // of parts
	routes    []*link // between nodes
	parts     []*process
	nc        *nats.Conn // of the administrator
	js        jetstream.JetStream
	talk      talk
	history   *history // of the nemesis
	skipped   []string // faults and tools that the machine lacks
}

// newStage starts everything. The caller must close it, even after an error.
func newStage(ctx context.Context, c config, dir string) (*stage, error) {
	s := &stage{config: c, dir: dir, disks: make(map[string]disk)}
	for _, name := range []string{"history", "log"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return s, err
		}
	}
	var err error
	if s.history, err = openHistory(filepath.Join(dir, "history", "nemesis.jsonl"), "nemesis"); err != nil {
		return s, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, start := range []func(context.Context) error{
		s.startPostgres, s.startPooler, s.startNodes, s.connectAdmin, s.startParts, s.awaitStream,
	} {
		if err := start(ctx); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *stage) disk(name string, bytes int64) (disk, error) {
	d, err := newDisk(filepath.Join(s.dir, name), bytes)
	if err != nil {
		return d, err
	}
	if !d.isSmall() {
		s.skipped = append(s.skipped, "mounting is refused: the disk of "+name+" is not filled")
	}
	s.disks[name] = d
	return d, nil
}

func (s *stage) startPostgres(ctx context.Context) error {
	d, err := s.disk("postgres", 768<<20)
	if err != nil {
		return err
	}
	s.db, err = startCluster(ctx, d.dir, d)
	return err
}

func (s *stage) startPooler(context.Context) error {
	l, err := newLink("pgbouncer", "postgres", s.db.address())
	if err != nil {
		return err
	}
	s.toPrimary = append(s.toPrimary, l)
	var reason string
	s.pooler, reason, err = startBouncer(s.pgbouncer, filepath.Join(s.dir, "pgbouncer"), l.address())
	if reason != "" {
		s.skipped = append(s.skipped, "PgBouncer: "+reason)
	}
	return err
}

// startNodes starts the NATS servers, which reach each other through links.
func (s *stage) startNodes(context.Context) error {
	var accounts string
	accounts, s.passwords = natsconfig.Own(nil)
	configs := make([]*nodeConfig, nodes)
	for i := range configs {
		configs[i] = &nodeConfig{Accounts: accounts}
		for _, port := range []*int{&configs[i].Client, &configs[i].Route} {
			var err error
			if *port, err = reserve.Port(); err != nil {
				return err
			}
		}
	}
	for i, c := range configs {
		d, err := s.disk(nodeName(i), 512<<20)
		if err != nil {
			return err
		}
		c.Store = filepath.Join(d.dir, "store")
		for j, other := range configs {
			if i == j {
				continue
			}
			l, err := newLink(nodeName(i), nodeName(j), fmt.Sprintf("127.0.0.1:%d", other.Route))
			if err != nil {
				return err
			}
			s.routes = append(s.routes, l)
			c.Routes = append(c.Routes, "nats://"+l.address())
		}
		node, err := s.start(partConfig{Name: nodeName(i), Program: "nats", Node: c})
		if err != nil {
			return err
		}
		s.nodes = append(s.nodes, node)
	}
	return nil
}

// connectAdmin connects the nemesis to NATS, past all links, and waits for the cluster.
func (s *stage) connectAdmin(ctx context.Context) (err error) {
	var hosts []string
	for _, node := range s.nodes {
		hosts = append(hosts, fmt.Sprintf("127.0.0.1:%d", node.config.Node.Client))
	}
	if s.nc, err = stream.Connect(s.natsURLs(hosts)[natsconfig.Admin]); err != nil {
		return err
	}
	if s.js, err = jetstream.New(s.nc); err != nil {
		return err
	}
	return s.awaitNATS(ctx)
}

// awaitNATS waits until JetStream elects a leader.
func (s *stage) awaitNATS(ctx context.Context) error {
	return persist(ctx, func(ctx context.Context) error {
		_, err := s.js.AccountInfo(ctx)
		return err
	})
}

// awaitStream waits until a relay has made the stream.
func (s *stage) awaitStream(ctx context.Context) error {
	return persist(ctx, func(ctx context.Context) error {
		_, err := s.js.Stream(ctx, stream.Name)
		return err
	})
}

// persist calls f until it returns nil, since a cluster in trouble does not answer every request.
func persist(ctx context.Context, f func(context.Context) error) error {
	for {
		trying, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := f(trying)
		cancel()
		if err == nil {
			return nil
		}
		if cause := loop.Sleep(ctx, 50*time.Millisecond); cause != nil {
			return fmt.Errorf("%w: %w", cause, err)
		}
	}
}

// natsURLs returns the addresses of the cluster for each user.
func (s *stage) natsURLs(hosts []string) map[string]string {
	urls := make(map[string]string)
	for user, password := range s.passwords {
		var all []string
		for _, host := range hosts {
			u := url.URL{Scheme: "nats", User: url.UserPassword(user, password), Host: host}
			all = append(all, u.String())
		}
		urls[user] = strings.Join(all, ",")
	}
	return urls
}

func (s *stage) startParts(context.Context) error {
	for _, c := range cast {
		for i := range c.count {
			p := partConfig{Name: fmt.Sprintf("%s-%d", c.program, i+1), Program: c.program,
				Rate: s.rate, Seed: s.seed + uint64(i)*1_000_003, Overload: s.overload != "",
				CallerRuns: s.overload == string(ledger.CallerRuns)}
			role := c.role
			if p.CallerRuns && c.program == "producer" {
				role = "app"
			}
			if err := s.link(&p, role, c.isPooled); err != nil {
				return err
			}
			started, err := s.start(p)
			if err != nil {
				return err
			}
			s.parts = append(s.parts, started)
		}
	}
	return nil
}

// link makes the links of a part to the database and to each NATS server.
func (s *stage) link(p *partConfig, role string, isPooled bool) error {
	isPooled = isPooled && s.pooler != nil
	target := s.db.address()
	if isPooled {
		target = s.pooler.address
	}
	l, err := newLink(p.Name, "postgres", target)
	if err != nil {
		return err
	}
	if !isPooled {
		s.toPrimary = append(s.toPrimary, l)
	}
	s.links = append(s.links, l)
	p.Database, p.Operator = login(role, l.address(), isPooled), login("operator", l.address(), isPooled)
	var hosts []string
	for _, node := range s.nodes {
		l, err := newLink(p.Name, node.config.Name, fmt.Sprintf("127.0.0.1:%d", node.config.Node.Client))
		if err != nil {
			return err
		}
		s.links = append(s.links, l)
		hosts = append(hosts, l.address())
	}
	p.NATS = s.natsURLs(hosts)
	return nil
}

func (s *stage) start(c partConfig) (*process, error) {
	c.History = filepath.Join(s.dir, "history", c.Name+".jsonl")
	p := &process{config: c, logFile: filepath.Join(s.dir, "log", c.Name+".log")}
	return p, p.start()
}

// redirect points all links to the primary, after a promotion.
func (s *stage) redirect() {
	for _, l := range s.toPrimary {
		l.redirect(s.db.address())
	}
}

// linksOf returns the links of a part to servers whose name begins with a prefix.
func (s *stage) linksOf(p *process, prefix string) []*link {
	var found []*link
	for _, l := range s.links {
		if l.from == p.config.Name && strings.HasPrefix(l.to, prefix) {
			found = append(found, l)
		}
	}
	return found
}

// of returns the parts that run a program.
func (s *stage) of(program string) []*process {
	var found []*process
	for _, p := range s.parts {
		if p.config.Program == program {
			found = append(found, p)
		}
	}
	return found
}

// stopParts stops the parts of a program, and returns the parts that SIGTERM did not end.
func (s *stage) stopParts(program string) (late []string, err error) {
	for _, p := range s.of(program) {
		ended, err := p.stop()
		if err != nil {
			return late, err
		}
		if !ended {
			late = append(late, p.String())
		}
	}
	return late, nil
}

// close ends everything.
func (s *stage) close() error {
	var errs []error
	for _, p := range append(s.parts, s.nodes...) {
		errs = append(errs, p.kill())
	}
	for _, l := range append(append(s.links, s.routes...), s.toPrimary...) {
		l.close()
	}
	if s.nc != nil {
		s.nc.Close()
	}
	if s.pooler != nil {
		errs = append(errs, s.pooler.close())
	}
	if s.db != nil {
		errs = append(errs, s.db.close())
	}
	for _, d := range s.disks {
		errs = append(errs, d.close())
	}
	return errors.Join(errs...)
}
