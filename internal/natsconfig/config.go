// Package natsconfig writes the accounts and users of a NATS server, with the rights of each role.
//
// A permission in NATS limits the subjects that a client publishes to, but not the reply subject that it requests. Any
// client that may pull a message can make the server publish it to ledger.>, where the stream stores it. An answer
// stays in the client's account, so each role has an account of its own. Only the relay and the administrator are in
// the stream's account.
//
// An answer can also be a request, if the account imports its subject. A pulled message could thus pull from another
// consumer. Subscribers therefore import only the requests about their own consumer. They do not create it, because a
// new consumer may deliver to any subject of the stream's account. In such an account the server itself answers
// requests below $JS.API. Therefore a subscriber's requests are in a JetStream domain with its name:
// jetstream.NewWithDomain(nc, "mails"). Operators import all requests, but may not pull from a consumer. Workers import
// none: they and the dispatcher exchange messages in plain NATS.
package natsconfig

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	ledgerstream "github.com/taskledger/taskledger/internal/stream"
)

// Names of the users that every configuration has.
const (
	Admin    = "admin"    // everything in the account of the stream: the command nats
	Relay    = "relay"    // the services of serve
	Worker   = "worker"   // workers of every kind
	Operator = "operator" // the commands of taskledger
	Waiter   = "waiter"   // programs that wait for results
)

// DefaultAccount is the name of the account of the stream.
const DefaultAccount = "LEDGER"

// Config describes the accounts of a server. The zero value contains the five users, without subscribers.
type Config struct {
	Account     string   // of the stream; the names of the other accounts begin with it. Default: LEDGER.
	Prefixes    []string // of the ledgers that share the accounts, in their users' names too. Default: one without.
	Subscribers []string // users with one consumer each, of the same name
	Served      []string // names of subscribers of taskledger serve subscriber; * for all with one user
	StoreDir    string   // of JetStream. Default: /var/lib/nats.
	TLS         *TLS     // Default: disabled.

	// Credential returns the fields of a user with its credential: nkey: U…. Required.
	Credential func(user string) string
}

// TLS names the files of the server's certificate.
type TLS struct {
	Cert, Key string
	CA        string // of the clients' certificates, which are then required. Default: not required.
}

// Names of users and accounts.
var nameRule = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Validate returns the first fault.
func (c Config) Validate() error {
	if slices.Contains(c.Served, anyName) && len(c.Served) > 1 {
		return fmt.Errorf("a user for all served subscribers must be the only one")
	}
	for _, p := range c.prefixes() {
		if err := p.Validate(); err != nil {
			return err
		}
	}
	for i, name := range c.Users() {
		if !nameRule.MatchString(name) {
			return fmt.Errorf("name of a user must match %s, got %q", nameRule, name)
		}
		if slices.Contains(c.Users()[:i], name) {
			return fmt.Errorf("user %s must be named once", name)
		}
	}
	if c.Account != "" && !nameRule.MatchString(c.Account) {
		return fmt.Errorf("account must match %s, got %q", nameRule, c.Account)
	}
	if c.TLS != nil && (c.TLS.Cert == "" || c.TLS.Key == "") {
		return fmt.Errorf("TLS needs a certificate and its key")
	}
	return nil
}

// Users returns the names of all users.
func (c Config) Users() []string {
	users := []string{Admin}
	for _, p := range c.prefixes() {
		for _, name := range append([]string{Relay, Worker, Operator, Waiter}, c.Subscribers...) {
			users = append(users, userOf(p, name))
		}
		for _, name := range c.Served {
			user := userOf(p, servedUser(name))
			users = append(users, user, ServerOf(user))
		}
	}
	return users
}

// prefixes returns the prefixes of the ledgers.
func (c Config) prefixes() []ledgerstream.Prefix {
	if len(c.Prefixes) == 0 {
		return []ledgerstream.Prefix{ledgerstream.None}
	}
	var all []ledgerstream.Prefix
	for _, p := range c.Prefixes {
		all = append(all, ledgerstream.Prefix(p))
	}
	return all
}

// userOf returns the name of a user of the ledger with a prefix.
func userOf(p ledgerstream.Prefix, name string) string {
	if p == ledgerstream.None {
		return name
	}
	return string(p) + "-" + name
}

// account is one account with its users.
type account struct {
	name    string
	comment string
	streams []string // lines that enable JetStream of its own
	users   []user
	exports []string // lines
	imports []string // lines
}

// user is a user with rights; nil: all.
type user struct {
	name   string
	rights *rights
}

// File returns a whole configuration file.
func (c Config) File() string {
	w := &writer{}
	storeDir := c.StoreDir
	if storeDir == "" {
		storeDir = "/var/lib/nats"
	}
	w.line("jetstream {")
	w.line("store_dir: " + strconv.Quote(storeDir))
	w.line("}")
	if c.TLS != nil {
		w.line("")
		w.line("tls {")
		w.line("cert_file: " + strconv.Quote(c.TLS.Cert))
		w.line("key_file: " + strconv.Quote(c.TLS.Key))
		if c.TLS.CA != "" {
			w.line("ca_file: " + strconv.Quote(c.TLS.CA))
			w.line("verify: true")
		}
		w.line("}")
	}
	w.line("")
	return w.String() + c.AccountsText()
}

// AccountsText returns the part of the configuration with accounts and users.
func (c Config) AccountsText() string {
	w := &writer{}
	w.line("accounts {")
	for i, a := range c.accounts() {
		if i > 0 {
			w.line("")
		}
		w.line("# " + a.comment)
		w.line(a.name + ": {")
		for _, line := range a.streams {
			w.line(line)
		}
		w.line("users: [")
		for _, u := range a.users {
			w.user(c.Credential(u.name), u.rights)
		}
		w.line("]")
		w.list("exports", a.exports)
		w.list("imports", a.imports)
		w.line("}")
	}
	w.line("}")
	return w.String()
}

// accounts returns the accounts; the stream's account is the first.
func (c Config) accounts() []account {
	name := c.Account
	if name == "" {
		name = DefaultAccount
	}
	of := shared{stream: name, workers: name + "_WORKERS", operators: name + "_OPERATORS", waiters: name + "_WAITERS"}
	list := []account{{
		name:    of.stream,
		comment: "The stream, its administrator, and the services of taskledger serve.",
		streams: []string{"jetstream: enabled"},
		users:   []user{{Admin, nil}},
	}, {
		name:    of.workers,
		comment: "Workers: workers.Pool. They ask the dispatcher for tasks, and wait for results.",
	}, {
		name:    of.operators,
		comment: "The commands of taskledger.",
		imports: []string{imported("service", of.stream, allAPI)},
	}, {
		name:    of.waiters,
		comment: "Programs that wait for results: outbox.Waiter. They receive the outcomes of tasks.",
	}}
	var subscribers []string // accounts
	for _, p := range c.prefixes() {
		of.add(list, p)
		for _, name := range c.Subscribers {
			subscriber := of.subscriber(p, name)
			subscribers, list = append(subscribers, subscriber.name), append(list, subscriber)
		}
	}
	list[0].exports = append([]string{
		exported("service", allAPI, "response_type: stream, ", append([]string{of.operators}, subscribers...)...),
	}, list[0].exports...)
	if len(subscribers) > 0 {
		for _, p := range c.prefixes() {
			list[0].exports = append(list[0].exports, exported("service", allAcks(p), "", subscribers...))
		}
	}
	for _, p := range c.prefixes() {
		for _, name := range c.Served {
			list = append(list, of.served(p, name))
		}
	}
	return list
}

// shared contains the names of the accounts that all ledgers share.
type shared struct{ stream, workers, operators, waiters string }

// add adds the users of one ledger, and the subjects that its accounts exchange.
func (s shared) add(list []account, p ledgerstream.Prefix) {
	stream, workers, operators, waiters := &list[0], &list[1], &list[2], &list[3]
	stream.users = append(stream.users, user{userOf(p, Relay), relayRights(p)})
	workers.users = append(workers.users, user{userOf(p, Worker), workerRights(p)})
	operators.users = append(operators.users, user{userOf(p, Operator), operatorRights(p)})
	waiters.users = append(waiters.users, user{userOf(p, Waiter), waiterRights(p)})

	offers, reports, progress := allOffers(p), p.AllReports(), allProgress(p)
	stream.exports = append(stream.exports, exported("service", p.AllReplays(), "", s.operators),
		exported("stream", offers, "", s.workers))
	stream.imports = append(stream.imports, imported("stream", s.workers, reports))
	for _, name := range []string{s.workers, s.operators, s.waiters} {
		stream.imports = append(stream.imports, imported("stream", name, p.Wake()))
	}
	for _, a := range []*account{workers, operators, waiters} {
		a.exports = append(a.exports, exported("stream", p.Wake(), "", s.stream))
	}
	workers.exports = append(workers.exports, exported("stream", progress, "", s.operators),
		exported("stream", reports, "", s.stream))
	workers.imports = append(workers.imports, imported("stream", s.stream, offers))
	operators.imports = append(operators.imports, imported("service", s.stream, p.AllReplays()),
		imported("stream", s.workers, progress))
	for _, subject := range p.OutcomeSubjects() {
		stream.exports = append(stream.exports,
			exported("stream", subject, "", s.workers, s.operators, s.waiters))
		for _, a := range []*account{workers, operators, waiters} {
			a.imports = append(a.imports, imported("stream", s.stream, subject))
		}
	}
}

// subscriber returns the account of a subscriber, whose requests are in a domain with its user's name.
func (s shared) subscriber(p ledgerstream.Prefix, consumer string) account {
	name := userOf(p, consumer)
	a := account{
		name: s.stream + "_SUBSCRIBER_" + name,
		comment: fmt.Sprintf("A subscriber to events, with the consumer %s and the JetStream domain %s.", consumer,
			name),
		users: []user{{name, subscriberRights(p, consumer)}},
	}
	for _, request := range subscriberRequests(p, consumer) {
		line := strings.TrimSuffix(imported("service", s.stream, request), " }")
		a.imports = append(a.imports, fmt.Sprintf("%s, to: %q }", line, inDomain(name, request)))
	}
	a.imports = append(a.imports, imported("service", s.stream, acksOf(p, consumer)))
	return a
}

// served returns the account of a served subscriber.
func (s shared) served(p ledgerstream.Prefix, name string) account {
	of, comment := userOf(p, servedUser(name)), "Subscribers of taskledger serve subscriber, and their servers."
	account := s.stream + "_SERVED"
	if name != anyName {
		comment = "The subscriber " + name + ", which " + ServerOf(of) + " serves from the database."
	}
	if of != Served {
		account += "_" + of
	}
	return accountOf(account, comment, servedStreams(name),
		user{of, servedRights(p, name)}, user{ServerOf(of), serverRights(p, name)})
}

func accountOf(name, comment string, streams []string, users ...user) account {
	return account{name: name, comment: comment, streams: streams, users: users}
}

func exported(what, subject, options string, accounts ...string) string {
	return fmt.Sprintf("{ %s: %q, %saccounts: [%s] }", what, subject, options, strings.Join(accounts, ", "))
}

func imported(what, from, subject string) string {
	return fmt.Sprintf("{ %s: { account: %s, subject: %q } }", what, from, subject)
}

// writer writes lines, indented by their brackets.
type writer struct {
	strings.Builder
	depth int
}

func (w *writer) line(text string) {
	if strings.HasPrefix(text, "}") || strings.HasPrefix(text, "]") {
		w.depth--
	}
	if text != "" {
		w.WriteString(strings.Repeat("  ", w.depth))
	}
	w.WriteString(text + "\n")
	if strings.HasSuffix(text, "{") || strings.HasSuffix(text, "[") {
		w.depth++
	}
}

func (w *writer) user(credential string, r *rights) {
	if r == nil {
		w.line("{ " + credential + " }")
		return
	}
	w.line("{")
	w.line(credential)
	w.line("permissions: {")
	w.list("publish", quoted(r.publish))
	w.list("subscribe", quoted(r.subscribe))
	w.line("}")
	w.line("}")
}

func quoted(subjects []string) (lines []string) {
	for _, subject := range subjects {
		lines = append(lines, strconv.Quote(subject))
	}
	return lines
}

// list writes a named list, unless it is empty.
func (w *writer) list(name string, lines []string) {
	if len(lines) == 0 {
		return
	}
	w.line(name + ": [")
	for _, line := range lines {
		w.line(line)
	}
	w.line("]")
}
