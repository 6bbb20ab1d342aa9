package main

import (
	"net/url"
	"os"
	"testing"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// roleOf is the role of each command in these tests: the least that docs/operations.md promises for it. A command
// without a role cannot connect to the database of a test.
var roleOf = map[string]string{
	"taskledger serve":            "relay",
	"taskledger enqueue":          "producer",
	"taskledger import watermill": "producer",
	"taskledger status":           "reader",
	"taskledger task show":        "reader",
	"taskledger task list":        "reader",
	"taskledger task history":     "reader",
	"taskledger task tree":        "reader",
	"taskledger task dead":        "reader",
	"taskledger task cancel":      "operator",
	"taskledger task release":     "operator",
	"taskledger task reschedule":  "operator",
	"taskledger task bury":        "operator",
	"taskledger schedule list":    "reader",
	"taskledger schedule show":    "reader",
	"taskledger schedule apply":   "operator",
	"taskledger schedule run":     "operator",
	"taskledger schedule pause":   "operator",
	"taskledger schedule resume":  "operator",
	"taskledger schedule delete":  "operator",
	"taskledger alarm list":       "reader",
	"taskledger alarm test":       "operator",
	"taskledger limit list":       "reader",
	"taskledger limit set":        "operator",
	"taskledger limit remove":     "operator",
	"taskledger kind list":        "reader",
	"taskledger kind pause":       "operator",
	"taskledger kind resume":      "operator",
	"taskledger worker list":      "reader",
	"taskledger worker retire":    "operator",
	"taskledger parked list":      "reader",
	"taskledger parked show":      "reader",
	"taskledger parked retry":     "operator",
	"taskledger parked discard":   "operator",
	"taskledger illegal list":     "reader",
	"taskledger illegal dismiss":  "operator",
	"taskledger stream show":      "reader",
	"taskledger stream rebuild":   "operator",
	"taskledger migrate status":   "reader",
	"taskledger migrate up":       ledgertest.Owner,
	"taskledger migrate roles":    ledgertest.Owner,
	"taskledger rebase":           ledgertest.Owner,
}

// envLogins is the variable with the login of each role, as user:password in the form of a query.
const envLogins = "TASKLEDGER_TEST_LOGINS"

// logins returns the value of [envLogins] for the server of a database of package ledgertest.
func logins(t testing.TB, address string) string {
	t.Helper()
	users := url.Values{}
	for _, role := range roleOf {
		u, err := url.Parse(ledgertest.URLAs(t, address, role))
		if err != nil {
			t.Fatal(err)
		}
		users.Set(role, u.User.String())
	}
	return users.Encode()
}

// addressFor returns the address of a database for the role of a command line: that of the owner is replaced, and each
// other one is not changed, because the test is about it.
func addressFor(address, logins string, args []string) string {
	users, err := url.ParseQuery(logins)
	u, urlErr := url.Parse(address)
	if err != nil || urlErr != nil || u.User.String() != users.Get(ledgertest.Owner) {
		return address
	}
	cmd, _, err := newApp().newRootCommand().Find(args)
	if err != nil {
		return address
	}
	user, err := url.Parse("postgres://" + users.Get(roleOf[cmd.CommandPath()]) + "@")
	if err != nil {
		return address
	}
	u.User = user.User
	return u.String()
}

// mainAs is the program, as the role of its command.
func mainAs() {
	address := addressFor(os.Getenv(envDatabaseURL), os.Getenv(envLogins), os.Args[1:])
	if err := os.Setenv(envDatabaseURL, address); err != nil {
		panic(err)
	}
	main()
}

// Each command of the program has a role here, or connects to no database.
func TestEachCommandHasARole(t *testing.T) {
	t.Parallel()
	needsNone := map[string]string{
		"taskledger demo":        "has servers of its own",
		"taskledger version":     "connects to nothing",
		"taskledger migrate sql": "connects to nothing",
		"taskledger nats-config": "connects to nothing",
	}
	found := 0
	walk(newApp().newRootCommand(), func(cmd *cobra.Command) {
		if path := cmd.CommandPath(); cmd.Runnable() && !cmd.HasSubCommands() && needsNone[path] == "" {
			found++
			if roleOf[path] == "" {
				t.Errorf("%s has no role", path)
			}
		}
	})
	if found < 25 {
		t.Errorf("only %d commands were found", found)
	}
}
