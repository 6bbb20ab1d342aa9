package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/embedded"
)

const (
	envConsoleURL = "TASKLEDGER_CONSOLE_URL"
	// defaultConsoleURL is the address in the examples of serve --listen, for a serve that has not announced its own.
	defaultConsoleURL = "http://127.0.0.1:8080/"
	// maxConsoleWait bounds the check whether the console answers.
	maxConsoleWait = 3 * time.Second
)

// openedLink is the result as JSON.
type openedLink struct {
	URL string `json:"url"`
	api.Token
}

func newOpenCommand(a *app) *cobra.Command {
	var o api.TokenOptions
	var role, address string
	expiresIn := api.SessionAge
	cmd := &cobra.Command{
		Use:   "open",
		Short: "Print a link that signs in to the console once",
		Long: `Print a link on standard output that signs in to the console once, within 2 minutes. The code of the
link is its fragment, which browsers send to no server: it is in no log. The database stores only its
SHA-256.

The session gets the role of --role, and the kinds of --kind. It ends after 12 hours (--expires-in), or
with taskledger delete token. Its --name is the actor of its changes.`,
		Example: "  taskledger open\n  taskledger open --url https://tasks.example.com/ --role viewer",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if address != "" {
				if _, err := consoleURL(address); err != nil {
					return err
				}
			}
			o.Role, o.Actor = api.Role(role), actorOr("")
			o.ExpiresAt = time.Now().Add(expiresIn)
			return a.withDatabase(cmd.Context(), func(ctx context.Context, db *pgxpool.Pool) error {
				base, err := consoleURL(cmp.Or(address, a.announcedConsole(), defaultConsoleURL))
				if err != nil {
					return err
				}
				o.Name = cmp.Or(o.Name, sessionName(o.Actor, db.Config().ConnConfig.User))
				t, secret, err := api.CreateLink(ctx, db, o)
				if err != nil {
					return err
				}
				a.noteUnreachable(ctx, base)
				base.Fragment = secret
				return a.print(openedLink{base.String(), t}, func(w io.Writer) {
					fmt.Fprintf(a.stderr, "a session of %s, role %s, for %s; the link works once, for %s\n",
						plain(t.Name), t.Role, age(expiresIn), age(api.LinkAge))
					fmt.Fprintln(w, base)
				})
			})
		},
	}
	cmd.Flags().StringVar(&address, "url", "",
		"`address` of the console (default: the address of the serve in the data directory, or\n"+defaultConsoleURL+")")
	bind(cmd.Flags(), "url", envConsoleURL)
	cmd.Flags().StringVar(&role, "role", string(api.Operator), "viewer, producer, worker, operator or admin")
	cmd.Flags().StringArrayVar(&o.Kinds, "kind", nil,
		"a `kind`, or a beginning such as coupon.*; may be repeated (default: all kinds)")
	addDuration(cmd.Flags(), &expiresIn, "expires-in", "how long the session works")
	cmd.Flags().StringVar(&o.Name, "name", "",
		"name of the session (default: your user name on this machine, otherwise\nthe database login)")
	refuseZero(cmd.Flags(), "role", "expires-in", "name")
	return cmd
}

// sessionName returns the default name of a session: the user's, or else the database login, since a container may have
// no users, and Windows puts a domain in front of them.
func sessionName(user, login string) string {
	if api.CheckName(user) != nil {
		return login
	}
	return user
}

// consoleURL returns the address of the page on which the console's callers sign in.
func consoleURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" {
		return nil, usagef("--url must be an address such as %s, got %q", defaultConsoleURL, address)
	}
	u.Path = strings.TrimSuffix(u.Path, "/") + "/sign-in"
	return u, nil
}

// announcedConsole returns the address of the console of the serve whose database the command uses, "" if it does not
// run in the data directory, or has no console. A browser cannot open the address of all interfaces.
func (a *app) announcedConsole() string {
	servers, err := embedded.Attach(a.config.dataDir)
	if err != nil || servers.DatabaseURL != a.config.databaseURL || servers.HTTPURL == "" {
		return ""
	}
	u, err := url.Parse(servers.HTTPURL)
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsUnspecified() {
		u.Host = net.JoinHostPort("localhost", u.Port())
	}
	return u.String()
}

// noteUnreachable writes a note if the console does not answer this machine. The browser may run elsewhere.
func (a *app) noteUnreachable(ctx context.Context, signIn *url.URL) {
	ctx, cancel := context.WithTimeout(ctx, maxConsoleWait)
	defer cancel()
	problem := ""
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, signIn.String(), nil)
	if err == nil {
		var answer *http.Response
		if answer, err = http.DefaultClient.Do(r); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				problem = "answers with status " + answer.Status
			}
		}
	}
	if err != nil {
		problem = "does not answer: " + reason(err)
	}
	if problem != "" {
		fmt.Fprintf(a.stderr, "warning: %s %s\nhint: is the console there? taskledger serve --listen HOST:PORT; "+
			"name its address with --url\n", plain(signIn.String()), plain(problem))
	}
}
