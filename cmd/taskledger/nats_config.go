package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/natsconfig"
)

// natsConfigFlags are the options of nats-config.
type natsConfigFlags struct {
	keys        string
	account     string
	storeDir    string
	prefixes    []string
	subscribers []string
	served      []string
	tls         natsconfig.TLS
}

func newNATSConfigCommand(a *app) *cobra.Command {
	var f natsConfigFlags
	cmd := &cobra.Command{
		Use:   "nats-config",
		Short: "Print the configuration of a NATS server with a user for each role",
		Long: `Print a configuration of nats-server with a user for each role and its rights:

  admin       changes or removes the stream: the command nats
  relay       taskledger serve
  worker      workers
  operator    the other commands of taskledger
  waiter      programs that wait for results: outbox.Waiter

Each role has an account of its own. --subscriber NAME adds a subscriber to events. It receives them in the JetStream
domain NAME from the consumer NAME, which admin makes:

  nats consumer add LEDGER NAME --pull --ack explicit --deliver all --filter 'ledger.*.succeeded.>' --defaults

--served NAME adds a subscriber that taskledger serve subscriber NAME serves from the database, as the user NAME-server.
Its account contains a separate stream, which the server creates.

--prefix PREFIX, once for each ledger, makes several ledgers share the accounts. The users of each are PREFIX-relay and
so on, its stream is PREFIX_LEDGER, and its commands and programs have --nats-prefix PREFIX or TASKLEDGER_NATS_PREFIX.

The command nats: go install github.com/nats-io/natscli/nats@latest
It connects with --server tls://HOST:4222 --nkey DIR/admin.nk --tlsca CA, where CA is the server's CA.

With --keys the seed of each user's key is in DIR/USER.nk, with mode 0600. The command creates missing seeds, and
prints the public keys. Give each program its own file: --nats-nkey, or NATS_NKEY. Without --keys the public keys
are in the environment of nats-server: ADMIN_NKEY, RELAY_NKEY and so on.`,
		Example: "  taskledger nats-config --keys keys --subscriber mails --served orders > nats.conf",
		Args:    exactArgs(0),
		RunE:    func(*cobra.Command, []string) error { return natsConfig(a, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.keys, "keys", "", "`directory` of the users' seeds")
	flags.StringVar(&f.account, "account", natsconfig.DefaultAccount,
		"account of the stream; other accounts' names begin with it")
	flags.StringVar(&f.storeDir, "store-dir", "/var/lib/nats", "`directory` of JetStream")
	flags.StringArrayVar(&f.prefixes, "prefix", nil, "`prefix` of one of several ledgers, see --nats-prefix")
	flags.StringArrayVar(&f.subscribers, "subscriber", nil, "`name` of a subscriber's consumer")
	flags.StringArrayVar(&f.served, "served", nil, "`name` of a subscriber that is served from the database")
	flags.StringVar(&f.tls.Cert, "tls-cert", "", "`file` of the server's certificate")
	flags.StringVar(&f.tls.Key, "tls-key", "", "`file` of its key")
	flags.StringVar(&f.tls.CA, "tls-ca", "", "`file` of the CA of clients' certificates, then required")
	return cmd
}

func natsConfig(a *app, f natsConfigFlags) error {
	c := natsconfig.Config{
		Account: f.account, Prefixes: f.prefixes, Subscribers: f.subscribers, Served: f.served, StoreDir: f.storeDir,
		Credential: natsconfig.VariableCredential,
	}
	if f.tls != (natsconfig.TLS{}) {
		c.TLS = &f.tls
	}
	if err := c.Validate(); err != nil {
		return usagef("%s", err)
	}
	if f.keys != "" {
		keys, made, err := natsconfig.MakeKeys(f.keys, c.Users())
		if err != nil {
			return err
		}
		c.Credential = keys.Credential
		for _, name := range made {
			fmt.Fprintf(a.stderr, "made %s\n", name)
		}
	}
	answer := struct {
		Config string `json:"config"`
	}{natsConfigHead + c.File()}
	return a.print(answer, func(w io.Writer) { fmt.Fprint(w, answer.Config) })
}

// natsConfigHead begins the configuration.
const natsConfigHead = `# Made by: taskledger nats-config. Start: nats-server -c nats.conf
#
# Each role has an account of its own, because NATS does not limit the subject to which a client lets it send an answer:
# in the account of the stream, such an answer could be stored as an event. Two ledgers need
# different prefixes (--prefix), or two configurations with different accounts (--account).

`
