package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A line of the log in each format has its keys and hides a secret, also one that JSON escapes.
func TestLog(t *testing.T) {
	t.Parallel()
	const secret = `pass"w<ord\\s`
	for _, format := range []logFormat{logText, logJSON} {
		var out bytes.Buffer
		a := newApp()
		a.stderr, a.config.logFormat = &redactor{to: &out, secrets: a.secrets}, format
		a.secrets.learn(secret)
		log := a.newLogger().With("service", "relay")
		log.Debug("not shown")
		log.Warn("cannot use "+secret, "error", errors.New("wrong "+secret), "retry_in", time.Second, "tasks", 3)
		text := out.String()
		if strings.Contains(text, "ord") || strings.Count(text, "\n") != 1 || !strings.Contains(text, "xxxxx") {
			t.Errorf("%s: %s", format, text)
		}
		if format == logText {
			continue
		}
		var line struct {
			Time                       time.Time
			Level, Msg, Service, Error string
			RetryIn                    int64 `json:"retry_in"`
			Tasks                      int
		}
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if line.Level != slog.LevelWarn.String() || line.Msg != "cannot use xxxxx" || line.Service != "relay" ||
			line.Error != "wrong xxxxx" || line.RetryIn != 1e9 || line.Tasks != 3 || line.Time.IsZero() {
			t.Errorf("%+v", line)
		}
	}
}
