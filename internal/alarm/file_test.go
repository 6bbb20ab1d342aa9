package alarm_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/ledger"
)

// fields returns the fields of all errors in err, sorted.
func fields(err error) (names []string) {
	var e *ledger.InvalidError
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, fault := range joined.Unwrap() {
			names = append(names, fields(fault)...)
		}
	} else if errors.As(err, &e) {
		names = append(names, e.Field)
	}
	slices.Sort(names)
	return names
}

// Every fault is reported at once with the name of its field.
func TestParseNamesFields(t *testing.T) {
	t.Setenv("EMPTY", "")
	key := file(t, "key", "k") // a password, and no secret of webhooks
	good := `{"name": "a", "command": ["true"]}`
	receivers := `"receivers": [` + good + `]}`
	receiver := func(fields string) string { return `{"receivers": [{"name": "a", ` + fields + `}]}` }
	for text, want := range map[string]string{
		`{}`:              "receivers",
		`[]`:              "alarms",
		`{"a"`:            "alarms",
		`{"evry": "1m"}`:  "evry",
		`{"Every": "1m"}`: "Every",
		`{"kinds": [{"kind": "a", "Dead_over": 1}], ` + receivers: "kinds[0].Dead_over",

		`{"every": "soon", ` + receivers:                                    "every",
		`{"every": 5, ` + receivers:                                         "every",
		`{"kinds": [{"kind": "a", "waiting_over": "1 hour"}], ` + receivers: "kinds.waiting_over",
		`{"ignore_dead": ["a b"], ` + receivers:                             "ignore_dead[0]",

		`{"every": "-1m", "relay_lag": "-1s", "projection_lag": "-1s", ` + receivers: "every projection_lag relay_lag",

		`{"kinds": [{"kind": "a"}, {"kind": "a", "dead_over": -1}], ` + receivers: "kinds[0].dead_over " +
			"kinds[1].dead_over kinds[1].kind",
		`{"kinds": [{"kind": "", "waiting_over": "-1s"}], ` + receivers:          "kinds[0].kind kinds[0].waiting_over",
		`{"kinds": [{"kind": "taskledger.alarm", "dead_over": 1}], ` + receivers: "kinds[0].kind",

		`{"receivers": [` + good + `, ` + good + `]}`:     "receivers[1].name",
		`{"receivers": [{"name": "a/b", "command": []}]}`: "receivers[0].mail receivers[0].name",
		receiver(`"command": [""]`):                       "receivers[0].command[0]",
		receiver(`"command": ["x"], "webhook": {"url": "ftp://x"}`): "receivers[0].mail " +
			"receivers[0].webhook.secret_file receivers[0].webhook.url",
		receiver(`"webhook": {"url": "https://x/", "secret_env": "EMPTY"}`):     "receivers[0].webhook.secret_env",
		receiver(`"webhook": {"url": "https://x/", "secret_file": "/nowhere"}`): "receivers[0].webhook.secret_file",
		receiver(`"webhook": {"url": "https://x/", "secret_file": "` + key + `", "secret_env": "EMPTY"}`): "" +
			"receivers[0].webhook.secret_file",

		receiver(`"webhook": {"url": "http://10.0.0.1/", "secret_file": "` + key + `", "timeout": "31s"}`): "" +
			"receivers[0].webhook.secret_file receivers[0].webhook.timeout receivers[0].webhook.url",

		receiver(`"mail": {"host": "h:25", "port": 70000, "tls": "maybe", "ca_file": "` + key + `", "user": "u", ` +
			`"from": "x", "to": ["y", "z@example.com"]}`): "receivers[0].mail.ca_file receivers[0].mail.from " +
			"receivers[0].mail.host receivers[0].mail.port receivers[0].mail.tls receivers[0].mail.to[0] " +
			"receivers[0].mail.user",
		receiver(`"mail": {"host": "h", "tls": "none", "user": "u", "password_file": "` + key + `", ` +
			`"from": "x@example.com", "to": []}`): "receivers[0].mail.to receivers[0].mail.user",
	} {
		_, err := alarm.Parse([]byte(text))
		if have := strings.Join(fields(err), " "); have != want {
			t.Errorf("%s\nfaults %s\nwant   %s\n%v", text, have, want, err)
		}
	}
	f, err := alarm.Parse([]byte(`{"every": "10m", "kinds": [{"kind": "a", "waiting_over": "1h30m"}], ` + receivers))
	if err != nil || f.Rules.Every.String() != "10m0s" || f.Rules.Kinds[0].WaitingOver.String() != "1h30m0s" {
		t.Errorf("%+v, %v", f, err)
	}
}

// Errors do not contain URLs, which may have a token.
func TestErrorsShowNoSecret(t *testing.T) {
	t.Parallel()
	_, err := alarm.Parse([]byte(`{"receivers": [{"name": "a", "webhook": {"url": "htp://token-hush@x/"}}]}`))
	if err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("error %v", err)
	}
}
