// Package rules holds the tests of rules that hold for the whole tree.
package rules_test

import (
	"slices"
	"testing"
)

// A rule lists the packages that a package may import beside the standard library. The names of
// our own packages begin with a slash; a trailing /... allows what lies below.
type rule struct {
	pkg    string
	may    []string
	reason string
}

var rules = []rule{
	{
		pkg: module,
		may: []string{"/ledger", "/outbox", "/workers", "/internal/natsclient", "/internal/natsconfig",
			"/internal/pgerr", "/internal/pgpool", "/internal/probe", "/internal/stream", pgx, nats},
		reason: "the front door of programs that enqueue, work and wait: TestFrontDoor has what they link",
	},
	{
		pkg: "/services",
		may: []string{module, "/migrations", "/internal/embedded", "/internal/pgerr", "/internal/pgfetch",
			"/internal/pgpool", "/internal/reserve",
			"/ledger/...", "/outbox", "/projector", "/workers", "/internal/scheduler", "/internal/dispatcher",
			"/internal/health", "/internal/probe", "/metrics", "/internal/webhooks", "/internal/alarm",
			"/internal/api", "/internal/archive", "/internal/console", "/internal/idle", "/internal/relays",
			"/internal/remote",
			"/internal/archiver", "/internal/seal/...", "/internal/broker", "/internal/httpserver", "/internal/loop",
			"/internal/natsclient", "/internal/natsconfig", "/internal/stream", pgx, nats},
		reason: "the other door: it puts the services together, and no package of the library imports it",
	},
	{
		pkg: "/internal/broker",
		may: []string{"/outbox", "/internal/lease", "/internal/loop", "/internal/natsclient", "/internal/natsconfig",
			"/internal/natsserver", "/internal/pgerr", "/internal/pgquery", "/internal/reserve", pgx, nats},
		reason: "the NATS server of serve",
	},
	{
		pkg: "/internal/natsclient",
		may: []string{"/internal/loop", "/internal/natsconfig", "/internal/pgerr", "/internal/pgquery",
			"/internal/stream", nats},
		reason: "how every program finds the NATS server of serve: without the server",
	},
	{pkg: "/internal/recording", reason: "it records the output of any command"},
	{
		pkg:    "/internal/incidents",
		may:    []string{module, "/ledger", "/ledger/periodic", "/workers", "/internal/embedded", pgx},
		reason: "a shop is a program of a user, and serve is another process",
	},
	{
		pkg: "/internal/bucket", may: []string{"/ledger", "/internal/archive", minio, minio + "/pkg/credentials"},
		reason: "archives in object stores, which the command alone links",
	},
	{pkg: "/internal/pgpool", may: []string{pgx}, reason: "pools are configured in one way"},
	{pkg: "/internal/backends", may: []string{pgx}, reason: "connections that tests take over know no ledger"},
	{
		pkg: "/internal/abandon", may: []string{"/internal/loop", pgx},
		reason: "a function of a user that does not return, whichever service calls it",
	},
	{
		pkg: "/ledger",
		may: []string{"/internal/unexported", "/internal/pgerr", "/internal/pgarray", "/internal/pgquery",
			"/internal/printable", "/internal/reserved", "/internal/strictjson", pgx},
		reason: "a program that only enqueues needs the standard library and pgx alone",
	},
	{
		pkg: "/ledger/feed", may: []string{"/ledger", "/internal/feed"},
		reason: "the face of internal/feed: what a reader of users needs",
	},
	{
		pkg: "/internal/feed",
		may: []string{"/ledger",
			"/internal/eventrows", "/internal/fault", "/internal/pgarray", "/internal/pgerr", "/internal/pgquery",
			"/internal/strictjson",
			"/internal/lists", "/internal/loop", "/internal/unexported", pgx},
		reason: "following the ledger takes PostgreSQL and nothing else",
	},
	{
		pkg: "/internal/seal",
		may: []string{"/ledger", "/internal/feed", "/internal/fault", "/internal/pgarray", "/internal/pgerr",
			"/internal/pgquery", "/internal/strictjson", pgx, xMod},
		reason: "an auditor's program needs PostgreSQL and a Merkle tree, and for a proof the tree alone",
	},
	{
		pkg: "/internal/seal/sealer",
		may: []string{"/ledger", "/ledger/feed", "/internal/seal", "/internal/webhooks", "/internal/fault",
			"/internal/lease",
			"/internal/loop", "/internal/secret", "/internal/settings", pgx},
		reason: "the seal as a service: it needs PostgreSQL, and HTTP for witnesses and webhooks",
	},
	{
		pkg: "/internal/archive",
		may: []string{"/ledger", "/internal/seal", "/internal/fault", "/internal/feed", "/internal/loop",
			"/internal/pgarray", "/internal/pgerr", "/internal/pgquery", "/internal/unexported", pgx, xMod,
			compress},
		reason: "files of events are written, read and verified without a service, and verified without a database",
	},
	{pkg: "/ledger/stdsql", may: []string{"/ledger", pgx}, reason: "an adapter, and no more"},
	{
		pkg: "/ledger/ledgertest",
		may: []string{"/ledger", "/migrations", "/internal/backends", "/internal/pgfetch", "/internal/pgquery",
			"/internal/pgserver", pgx},
		reason: "the users' tests need a database and not our broker",
	},
	{
		pkg: "/internal/remote", may: []string{"/ledger", pgx, nats},
		reason: "what the HTTP API and pushes call: package workers, which is the gateway, stores the function there",
	},
	{
		pkg: "/internal/replay", may: []string{"/ledger", "/internal/feed", pgx, nats},
		reason: "what a command calls: package outbox, which encodes messages, stores the function there",
	},
	{
		pkg: "/internal/served", may: []string{"/ledger", "/internal/feed", pgx, nats},
		reason: "what a command calls: package outbox, which encodes messages, stores the functions there",
	},
	{
		pkg: "/outbox",
		may: []string{"/internal/relays", "/internal/replay", "/internal/served", "/ledger", "/internal/abandon",
			"/internal/feed", "/internal/copies", "/internal/lease", "/internal/pgarray", "/internal/lists",
			"/internal/loop",
			"/internal/operation", "/internal/pgerr", "/internal/pgquery", "/internal/stream", "/internal/fault",
			"/internal/eventrows", "/internal/loglimit", "/internal/rebuild", "/internal/reserved",
			"/internal/subscribers", "/internal/unexported", pgx, nats},
		reason: "relay, workers and projector meet in the ledger and on the stream, never in each other",
	},
	{
		pkg: "/workers",
		may: []string{"/ledger", "/internal/abandon",
			"/internal/lease", "/workers/internal/...", "/internal/dispatch", "/internal/local", "/internal/pgarray",
			"/internal/pgquery", "/internal/lists",
			"/internal/loop", "/internal/pgerr", "/internal/printable", "/internal/stream",
			"/internal/strictjson",
			"/internal/fault", "/internal/remote", pgx, nats},
		reason: "relay, workers and projector meet in the ledger and on the stream, never in each other",
	},
	{
		pkg: "/workers/internal/attempt",
		may: []string{"/ledger", "/workers/internal/inflight",
			"/workers/internal/queue", "/internal/eventdata", "/internal/unexported",
			"/internal/pgarray", "/internal/loglimit", "/internal/loop", "/internal/pgerr",
			"/internal/pgquery", "/internal/printable", "/internal/stream", "/internal/fault", pgx},
		reason: "one attempt does not import handlers, hooks or the pool: package workers passes them in",
	},
	{
		pkg:    "/workers/internal/inflight",
		may:    []string{"/ledger", "/internal/stream", nats},
		reason: "it is a set of messages in flight",
	},
	{
		pkg:    "/internal/dispatch",
		may:    []string{"/ledger"},
		reason: "two state machines without sockets, clocks and statements, so that every order can be searched",
	},
	{
		pkg: "/internal/local", may: []string{"/internal/dispatch"},
		reason: "it passes messages on, whatever they mean",
	},
	{pkg: "/workers/internal/slots", may: nil, reason: "slots are given to anything"},
	{pkg: "/workers/internal/queue", may: nil, reason: "a queue of anything"},
	{
		pkg:    "/internal/lease",
		may:    []string{"/ledger", "/internal/pgarray", "/internal/pgerr", "/internal/pgquery", "/internal/printable"},
		reason: "relay and workers have leases in one table, which one package owns",
	},
	{
		pkg:    "/internal/copies",
		may:    []string{"/ledger", "/internal/lease", "/internal/loglimit", "/internal/stream", nats},
		reason: "relays and dispatchers of copies of a database answer each other",
	},
	{
		pkg: "/internal/operation",
		may: []string{"/ledger", "/internal/pgerr", "/internal/pgquery", "/internal/printable", "/internal/reserved",
			pgx},
		reason: "the acts of operators are recorded in one way, whichever package they are about",
	},
	{
		pkg:    "/internal/durably",
		may:    []string{"/ledger", "/internal/pgquery", pgx},
		reason: "an enqueue that is acknowledged commits in one way, in the API and in commands",
	},
	{
		pkg:    "/internal/crashtest",
		may:    []string{"/ledger/ledgertest", "/internal/pgserver", pgx},
		reason: "for tests alone: a server whose crash undoes commits",
	},
	{
		pkg: "/watermill",
		may: []string{"/ledger", "/workers", "/internal/envelope", "/internal/loop", "/internal/stream", pgx, nats,
			watermill},
		reason: "an adapter, in a module of its own: it does not need the relay",
	},
	{
		pkg: "/internal/dispatcher",
		may: []string{"/ledger", "/internal/fault", "/internal/feed", "/internal/dispatch", "/internal/local",
			"/internal/only", "/internal/copies", "/internal/lease", "/internal/loglimit", "/internal/loop",
			"/internal/pgarray", "/internal/pgerr", "/internal/pgquery", "/internal/stream", pgx, nats},
		reason: "a service of its own: it gives out tasks, and does not depend on how workers run them",
	},
	{pkg: "/internal/only", may: []string{"/ledger"}, reason: "a restriction that users cannot state"},
	{
		pkg: "/internal/scheduler",
		may: []string{"/ledger", "/internal/feed", "/internal/fault", "/internal/lease", "/internal/loop",
			"/internal/nextrun", "/internal/pgarray", "/internal/pgerr", "/internal/pgquery", pgx},
		reason: "a service of its own: it appends what is due, and does not depend on how workers run tasks",
	},
	{
		pkg: "/internal/operator",
		may: []string{"/ledger", "/internal/durably", "/internal/lists",
			"/internal/operation", "/internal/pgarray", "/internal/pgerr",
			"/internal/pgquery", "/internal/printable", "/internal/stream", pgx, nats},
		reason: "a service of its own: it changes tasks by appending events, as other processes do",
	},
	{
		pkg: "/internal/explain",
		may: []string{"/ledger", "/projector", "/workers", "/internal/operator", "/internal/lists",
			"/internal/nextrun", "/internal/pgerr", "/internal/pgquery", "/internal/printable", "/internal/reserved"},
		reason: "sentences about a task, for the console and the command line",
	},
	{
		pkg: "/internal/servicetest",
		may: []string{"/ledger/...", "/outbox", "/workers", "/internal/dispatcher", "/internal/scheduler",
			"/internal/operator", "/projector", "/internal/...", pgx, nats},
		reason: "for tests alone: the bundle of workers and the services beside it",
	},
	{
		pkg: "/internal/torture",
		may: []string{"/ledger", "/internal/feed", "/outbox", "/workers", "/internal/dispatcher", "/internal/scheduler",
			"/internal/operator", "/projector", "/migrations", "/internal/...", pgx, nats,
			natsServer},
		reason: "it runs the whole product in processes of its own",
	},
	{
		pkg: "/workers/workertest",
		may: []string{"/ledger", "/ledger/ledgertest", "/internal/pgarray", "/workers", "/internal/dispatcher",
			"/internal/only",
			"/internal/stream", "/internal/natsserver", "/internal/fault", pgx, nats},
		reason: "the users' tests need a broker, and their production code does not get it",
	},
	{
		pkg: "/internal/idle",
		may: []string{"/internal/feed", "/internal/pgarray", "/internal/pgerr", "/internal/pgquery", "/internal/relays",
			"/internal/schedules", pgx},
		reason: "what the services have to do, by views and functions of those that own it",
	},
	{
		pkg: "/internal/schedules", may: []string{"/ledger", "/internal/pgerr", "/internal/pgquery"},
		reason: "what conditions and alarms report of schedules, by those that do not fire them",
	},
	{
		pkg: "/ledger/periodic",
		may: []string{"/ledger", "/internal/pgarray", "/internal/lists",
			"/internal/loop", "/internal/pgerr", "/internal/pgquery",
			"/internal/fault", "/internal/operation", "/internal/reserved", "/internal/strictjson", pgx, goCron},
		reason: "a producer: schedules enqueue tasks and do not depend on workers",
	},
	{
		pkg: "/internal/health",
		may: []string{"/internal/projection", "/internal/relays", "/internal/rebuild", "/internal/subscribers",
			"/ledger", "/internal/feed", "/internal/schedules", "/outbox", "/projector",
			"/internal/archiver", "/internal/dispatcher", "/internal/scheduler", "/internal/operator",
			"/internal/webhooks", "/internal/cache",
			"/internal/lists",
			"/internal/operation", "/internal/pgerr", "/internal/pgquery", "/internal/printable", "/internal/stream",
			nats},
		reason: "it reads what the services store; only alarms, commands and probes are above it",
	},
	{
		pkg:    "/internal/probe",
		may:    []string{"/ledger", nats},
		reason: "a worker mounts the handler, and does not link what reads conditions",
	},
	{
		pkg: "/metrics",
		may: []string{"/ledger", "/internal/health", "/projector", "/workers", "/internal/pgerr",
			"/internal/pgquery", pgx, nats, prometheus},
		reason: "it exports what the services store and count, and none of them depends on it",
	},
	{
		pkg:    "/tracing",
		may:    []string{"/ledger", "/outbox", "/workers", pgx, otel},
		reason: "hooks of the user: no package depends on it, and it needs the API of OpenTelemetry alone",
	},
	{pkg: "/internal/sdnotify", may: nil, reason: "a protocol of systemd, and no more"},
	{pkg: "/internal/httpserver", may: nil, reason: "timeouts and the shutdown do not depend on the endpoints"},
	{
		pkg: "/internal/alarm",
		may: []string{"/ledger", "/internal/schedules", "/internal/health", "/internal/operator", "/internal/fault",
			"/internal/loop", "/internal/pgerr", "/internal/pgquery", "/internal/printable", "/internal/reserved",
			"/internal/secret", "/internal/settings", "/internal/webhooks", pgx, goMail},
		reason: "alarms report conditions of package health, and need PostgreSQL only to be delivered",
	},
	{
		pkg: "/internal/archiver",
		may: []string{"/ledger", "/internal/archive", "/internal/fault", "/internal/loop", "/internal/operation",
			"/internal/pgarray", "/internal/pgerr", "/internal/pgquery", pgx},
		reason: "the archive as a service",
	},
	{
		pkg: "/internal/erasure",
		may: []string{"/ledger", "/internal/archive", "/internal/fault", "/internal/loop", "/internal/operation",
			"/internal/pgarray", "/internal/pgerr", "/internal/pgquery", pgx},
		reason: "the tables are erased by one function of the ledger; each reader of the feed does the rest itself",
	},
	{
		pkg: "/internal/rebuild",
		may: []string{"/ledger", "/internal/fault", "/internal/feed", "/internal/loop", "/internal/operation",
			"/internal/pgarray", "/internal/pgerr", "/internal/pgquery", "/internal/printable", pgx},
		reason: "tables are replaced in one way, whichever reader derives them",
	},
	{
		pkg: "/internal/projection",
		may: []string{"/ledger", "/internal/feed", "/internal/lists", "/internal/operation", "/internal/pgarray",
			"/internal/pgerr", "/internal/pgquery", "/internal/rebuild", "/internal/subscribers", pgx},
		reason: "the built-in projection is administered in one way, by those that do not keep it too",
	},
	{
		pkg: "/internal/relays",
		may: []string{"/ledger", "/internal/feed", "/internal/lease", "/internal/lists", "/internal/loop",
			"/internal/operation", "/internal/pgarray", "/internal/pgerr", "/internal/pgquery", "/internal/stream",
			"/internal/subscribers", pgx, nats},
		reason: "the relay and its stream are administered in one way, by those that do not run it too",
	},
	{
		pkg: "/internal/subscribers",
		may: []string{"/ledger", "/internal/feed", "/internal/lists", "/internal/operation", "/internal/pgarray",
			"/internal/pgerr", "/internal/pgquery", "/internal/rebuild", pgx},
		reason: "subscribers of all languages are administered in one way, by those that do not run them too",
	},
	{
		pkg: "/projector",
		may: []string{"/ledger", "/internal/rebuild",
			"/internal/feed", "/internal/abandon", "/internal/pgarray", "/internal/lists",
			"/internal/loop", "/internal/pgerr", "/internal/projection",
			"/internal/operation", "/internal/pgquery", "/internal/printable", "/internal/fault", pgx},
		reason: "projections read the ledger, and work without a broker",
	},
	{
		pkg: "/internal/api",
		may: []string{"/internal/subscribers",
			"/api/client", "/internal/health", "/internal/feed", "/ledger", "/ledger/periodic",
			"/outbox", "/projector", "/workers", "/internal/operator",
			"/internal/archive", "/internal/durably", "/internal/eventrows",
			"/internal/loop", "/internal/nextrun", "/internal/pgarray", "/internal/pgerr", "/internal/pgquery",
			"/internal/printable", "/internal/remote", "/internal/reserved", "/internal/strictjson",
			"/internal/wire", pgx, nats},
		reason: "it serves what the packages below it read and change; tests alone know OpenAPI",
	},
	{
		pkg: "/internal/console",
		may: []string{"/internal/feed", "/internal/subscribers",
			"/internal/api", "/api/client", "/internal/health", "/ledger", "/ledger/periodic", "/internal/seal",
			"/outbox", "/projector", "/workers", "/internal/archive", "/internal/operator", "/internal/cache",
			"/internal/lists", "/internal/projection",
			"/internal/explain", "/internal/pgerr", "/internal/pgquery", "/internal/printable", "/internal/reserved",
			"/internal/strictjson", pgx},
		reason: "pages of what the packages below it read; package api has the callers and their acts",
	},
	{
		pkg:    "/api/client",
		may:    []string{"/ledger", "/internal/loop", "/internal/wire"},
		reason: "programs without a database carry neither the services nor a broker",
	},
	{
		pkg:    "/internal/conformance",
		may:    []string{"/api/client", "/ledger", "/internal/strictjson", "/internal/wire"},
		reason: "it plays the server's part of the work protocol, and no part of the server",
	},
	{
		pkg: "/internal/conformance/check", may: []string{"/internal/conformance"},
		reason: "the command for a client in any language",
	},
	{
		pkg:    "/migrations",
		may:    []string{"/ledger", pgx, goose},
		reason: "the schema is made before there is a ledger; only the error for its absence is shared",
	},
	{pkg: "/internal/difference", may: nil, reason: "a helper of tests, which every package may use"},
	{pkg: "/internal/plantest", may: []string{pgx}, reason: "a helper of tests, which every package may use"},
	{pkg: "/internal/poolertest", may: []string{"/internal/reserve", pgx}, reason: "a helper of tests of any package"},
	{pkg: "/internal/smalldisk", may: nil, reason: "a helper of tests, which every package may use"},
	{
		pkg: "/internal/webhooks",
		may: []string{"/internal/subscribers", "/ledger", "/outbox", "/workers", "/internal/feed", "/internal/lists",
			"/internal/loop", "/internal/pgarray",
			"/internal/pgerr", "/internal/pgquery", "/internal/post", "/internal/remote", "/internal/reserved",
			"/internal/secret",
			"/internal/settings", "/internal/signature", pgx, nats},
		reason: "a subscriber whose deliveries are tasks: it is above both, as a program of users",
	},
	{pkg: "/webhook", may: []string{"/internal/signature"}, reason: "a receiver in Go needs no other package"},
	{pkg: "/internal/signature", may: nil, reason: "a format of Standard Webhooks, and no more"},
	{pkg: "/internal/post", may: []string{"/internal/printable"}, reason: "a request is sent in one way"},
	{pkg: "/internal/lists", may: []string{"/ledger"}, reason: "the limit of a list is checked in one way"},
	{pkg: "/internal/nextrun", may: []string{"/ledger"}, reason: "the task of a run that waits is named in one way"},
	{pkg: "/internal/secret", may: []string{"/ledger"}, reason: "secrets are read in one way"},
	{
		pkg:    "/internal/settings",
		may:    []string{"/ledger", "/internal/strictjson"},
		reason: "files of settings are decoded in one way",
	},
	{pkg: "/internal/wire", may: []string{"/ledger"}, reason: "bodies that the HTTP API and its clients share"},
	{pkg: "/internal/strictjson", may: nil, reason: "a program that only enqueues needs no other package"},
	{pkg: "/internal/reserved", may: nil, reason: "what a program may enqueue depends on no package"},
	{pkg: "/internal/fault", may: nil, reason: "every package has crash points"},
	{
		pkg: "/watermill/internal/watermilltest",
		may: []string{"/ledger", "/ledger/ledgertest", "/outbox", "/watermill", "/internal/dispatcher",
			"/internal/loop", "/internal/natsserver", "/internal/stream", pgx, nats, watermill},
		reason: "only the tests of the Watermill adapters use it",
	},
	{pkg: "/internal/pgerr", may: []string{pgx}, reason: "the meaning of an error of the database is defined once"},
	{pkg: "/internal/pgarray", may: nil, reason: "array literals are built in one way"},
	{pkg: "/internal/unexported", may: nil, reason: "package ledger imports it, and stores its functions there"},
	{
		pkg: "/internal/eventrows", may: []string{"/ledger", "/internal/unexported", pgx},
		reason: "rows of events are scanned in one way",
	},
	{pkg: "/internal/eventdata", may: []string{"/ledger"}, reason: "the data of events have one form"},
	{pkg: "/internal/tracestate", may: nil, reason: "a format of W3C, and no more"},
	{pkg: "/internal/pgquery", may: []string{pgx}, reason: "statements of one row are run in one way"},
	{
		pkg: "/internal/cache", may: []string{"/internal/loop"},
		reason: "values that take long to read are kept in one way",
	},
	{pkg: "/internal/longtest", may: nil, reason: "long forms of tests are chosen in one way"},
	{pkg: "/internal/loglimit", may: nil, reason: "lines that repeat are bounded in one way"},
	{pkg: "/internal/loop", may: nil, reason: "services wait, back off and stop in one way"},
	{pkg: "/internal/printable", may: nil, reason: "untrusted text is escaped in one way"},
	{pkg: "/internal/reserve", may: nil, reason: "ports and locks do not depend on the servers that use them"},
	{
		pkg:    "/internal/pgserver",
		may:    []string{"/internal/loop", "/internal/pgerr", "/internal/reserve", pgx},
		reason: "a server does not depend on its content",
	},
	{
		pkg:    "/internal/natsserver",
		may:    []string{"/internal/reserve", natsServer},
		reason: "a server does not depend on its messages",
	},
	{
		pkg:    "/internal/natsconfig",
		may:    []string{"/internal/stream", nkeys},
		reason: "rights are text: the embedded server and the user's own get the same",
	},
	{
		pkg:    "/internal/stream",
		may:    []string{"/ledger", "/internal/reserved", "/internal/tracestate", nats},
		reason: "the form of messages, shared by senders and receivers",
	},
	{
		pkg:    "/internal/envelope",
		may:    []string{"/ledger", "/internal/stream"},
		reason: "the form of Watermill's messages, shared by senders and receivers",
	},
	{
		pkg:    "/internal/pgfetch",
		may:    []string{"/internal/loop", "/internal/reserve"},
		reason: "what fetches binaries does not depend on what starts them",
	},
	{
		pkg:    "/internal/setup",
		may:    []string{"/internal/pgfetch", "/internal/pgserver"},
		reason: "it runs before anything else of the tree can",
	},
	{
		pkg:    "/internal/embedded",
		may:    []string{"/internal/pgerr", "/internal/pgserver", "/internal/natsconfig", "/internal/reserve", pgx},
		reason: "it starts and announces PostgreSQL; the commands migrate and use it",
	},
	{
		pkg: "/cmd/taskledger",
		may: []string{"/services", "/cmd/taskledger/internal/...", "/ledger/...", "/outbox",
			"/workers/...", "/projector", "/internal/webhooks", "/internal/health", "/internal/probe",
			"/metrics", "/migrations", "/internal/...", pgx, nats, cobra, pflag, goPretty, yaml, "golang.org/x/term"},
		reason: "the command wires everything",
	},
	{
		pkg: "/examples/orders", may: []string{module, "/ledger", "/workers", pgx},
		reason: "an example imports what a program of users may",
	},
	{
		pkg: "/examples/quickstart", may: []string{module, "/ledger", "/services", "/workers", pgx},
		reason: "an example imports what a program of users may",
	},
	{
		pkg: "/examples/campaign", may: []string{module, "/ledger", "/ledger/periodic", "/workers", pgx},
		reason: "an example imports what a program of users may",
	},
	{
		pkg: "/examples/partner", may: []string{module, "/ledger", "/workers"},
		reason: "an example imports what a program of users may",
	},
	{
		pkg: "/examples/points", may: []string{module, "/ledger", "/workers", pgx},
		reason: "an example imports what a program of users may",
	},
	{
		pkg: "/examples/tenants", may: []string{module, "/ledger", "/workers", pgx},
		reason: "an example imports what a program of users may",
	},
	{
		pkg: "/examples/stream", may: []string{nats},
		reason: "an example for programs without this module",
	},
	{
		pkg: "/examples/tables", may: []string{"/ledger", "/outbox", "/workers", pgx},
		reason: "an example imports what a program of users may",
	},
	{
		pkg: "/examples/subscriber", may: []string{module, "/ledger", "/outbox", pgx},
		reason: "an example imports what a program of users may",
	},
	{
		pkg:    "/cmd/taskledger/internal/whatif",
		may:    []string{"/ledger", "/internal/strictjson"},
		reason: "a simulation of what the ledger holds, for a command",
	},
	{pkg: "/cmd/taskledger/internal/demo", may: []string{"/internal/projection",
		"/ledger", "/outbox", "/workers", "/internal/dispatcher", "/internal/scheduler",
		"/ledger/periodic", "/projector", "/migrations", "/internal/fault", "/internal/loop", "/internal/natsconfig",
		"/internal/natsserver", "/internal/pgarray", "/internal/pgserver", "/internal/stream",
		pgx, nats, goPretty,
	}, reason: "the demo is a user of the library, and only the command starts it"},
	{
		pkg:    "/internal/movein",
		may:    []string{"/ledger", "/internal/envelope", "/internal/loop", "/internal/pgerr", pgx},
		reason: "a tool for one move, which no library carries",
	},
}

// A ban lists the packages on which a package must not depend, however indirectly.
type ban struct {
	pkgs   []string
	never  []string
	reason string
}

var library = []string{"/ledger", "/internal/archive", "/ledger/feed", "/ledger/stdsql", "/outbox", "/workers",
	"/internal/scheduler", "/internal/operator", "/ledger/periodic", "/internal/seal", "/internal/seal/sealer",
	"/internal/health", "/internal/alarm", "/internal/probe", "/projector", "/webhook", "/internal/webhooks",
	"/internal/api", "/api/client", "/internal/console"}

var bans = []ban{
	{
		pkgs:   library,
		never:  []string{"testing", "flag"},
		reason: "a library registers no flags and carries no test code",
	},
	{
		pkgs:   library,
		never:  []string{natsServer, "/internal/pgserver", "/internal/natsserver"},
		reason: "users run their own servers",
	},
	{pkgs: library, never: []string{goose, "/migrations"}, reason: "the operator chooses when to migrate"},
	{pkgs: library, never: []string{cobra, goPretty, yaml}, reason: "only commands need words and tables"},
	{pkgs: library, never: []string{otel}, reason: "only package tracing brings OpenTelemetry"},
	{pkgs: []string{"/tracing"}, never: []string{otel + "/sdk"}, reason: "the SDK is the user's"},
	{pkgs: library, never: []string{module, "/services"}, reason: "the doors are above the library"},
	{pkgs: library, never: []string{minio}, reason: "only the command writes to object stores"},
	{pkgs: library, never: []string{prometheus}, reason: "only package metrics brings the client of Prometheus"},
	{
		pkgs:   library,
		never:  []string{watermill, watermillSQL, "/internal/envelope"},
		reason: "only the module watermill brings Watermill",
	},
	{
		pkgs:   slices.DeleteFunc(slices.Clone(library), func(pkg string) bool { return pkg == "/internal/alarm" }),
		never:  []string{goMail},
		reason: "only alarms send mail",
	},
	{
		pkgs:   []string{"/ledger", "/ledger/feed", "/ledger/stdsql", "/outbox", "/workers", "/projector"},
		never:  []string{goCron},
		reason: "only periodic tasks have calendars",
	},
	{
		pkgs:   []string{"/internal/scheduler", "/internal/operator"},
		never:  []string{"/workers"},
		reason: "a service beside the workers runs no handlers: it uses the ledger and does not get the pool",
	},
	{
		pkgs: []string{"/ledger", "/internal/archive", "/ledger/feed", "/ledger/stdsql", "/internal/seal",
			"/internal/scheduler", "/ledger/periodic", "/projector", "/migrations"},
		never:  []string{nats},
		reason: "PostgreSQL is enough for these",
	},
}

func TestImports(t *testing.T) {
	all := packages(t)
	for name, p := range all {
		i := slices.IndexFunc(rules, func(r rule) bool { return r.pkg == name })
		if i < 0 {
			t.Errorf("%s has no rule: add one with its imports and the reason", name)
			continue
		}
		for _, path := range p.Imports {
			path = short(path)
			if !isStandard(path) && !slices.ContainsFunc(rules[i].may, func(pattern string) bool {
				return matches(path, pattern)
			}) {
				t.Errorf("%s imports %s: %s", name, path, rules[i].reason)
			}
		}
	}
	for _, name := range []string{"/ledger", "/migrations", "/outbox", "/workers", "/projector"} {
		if _, ok := all[name]; !ok {
			t.Errorf("%s was not checked", name)
		}
	}
}

func TestDependencies(t *testing.T) {
	all := packages(t)
	for _, ban := range bans {
		for _, name := range ban.pkgs {
			if _, found := all[name]; !found {
				t.Errorf("a ban names %s, which does not exist", name)
			}
			for _, path := range all[name].Deps {
				path = short(path)
				if slices.ContainsFunc(ban.never, func(pattern string) bool { return matches(path, pattern) }) {
					t.Errorf("%s depends on %s: %s", name, path, ban.reason)
				}
			}
		}
	}
}
