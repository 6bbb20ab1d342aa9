package main

import (
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// envLogins is the variable with the login of each role, as user:password in the form of a query.
const envLogins = "TASKLEDGER_TEST_LOGINS"

// flagWait is the flag of enqueue that needs a second role.
const flagWait = "--wait"

// logins returns the value of [envLogins] for the server of a database of package ledgertest.
func logins(t testing.TB, address string) string {
	t.Helper()
	users := url.Values{}
	set := func(name string, roles ...string) {
		u, err := url.Parse(ledgertest.URLAs(t, address, roles...))
		if err != nil {
			t.Fatal(err)
		}
		users.Set(name, u.User.String())
	}
	for _, role := range roleOf {
		set(role, strings.Split(role, ", ")...)
	}
	set(flagWait, "producer", "reader")
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
	cmd, rest, err := newApp().newRootCommand().Find(args)
	if err != nil {
		return address
	}
	_ = cmd.ParseFlags(rest) // the program reports a wrong one
	role := roleOf[nameOf(cmd, cmd.Flags().Args())]
	if slices.Contains(args, flagWait) {
		role = flagWait
	}
	if role == "" {
		return address
	}
	user, err := url.Parse("postgres://" + users.Get(role) + "@")
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
		"taskledger":              "prints help, or its version",
		"taskledger demo":         "has servers of its own",
		"taskledger nats-config":  "connects to nothing",
		"taskledger url database": "connects to nothing",
	}
	found := 0
	walk(newApp().newRootCommand(), func(cmd *cobra.Command) {
		for _, name := range namesOf(cmd) {
			if needsNone[name] == "" {
				found++
				if roleOf[name] == "" {
					t.Errorf("%s has no role", name)
				}
			}
		}
	})
	if found < 25 {
		t.Errorf("only %d commands were found", found)
	}
}
