package main

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

func TestHide(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"dial postgres://app:secret@db:5432/app?sslmode=disable": "dial postgres://xxxxx@db:5432/app?sslmode=disable",
		"nats://token@h:4222,nats://u:p@i:4222":                  "nats://xxxxx@h:4222,nats://xxxxx@i:4222",
		"postgres://app:se/cr@et@db/app":                         "postgres://xxxxx@db/app",
		"host=db password=secret user=app":                       "host=db password=xxxxx user=app",
		"PASSWORD = 'se cr\\' et' user=app":                      "PASSWORD = xxxxx user=app",
		"postgres://db/app?user=a&password=secret&x=1":           "postgres://db/app?user=a&password=xxxxx&x=1",
		"postgres://db:5432/app":                                 "postgres://db:5432/app",
		"mail to a@b":                                            "mail to a@b",
	} {
		if have := new(secrets).hide(in); have != want {
			t.Errorf("%q: got %q, want %q", in, have, want)
		}
	}
}

// A learned secret is hidden everywhere, in the form of the address and as it is.
func TestHideLearned(t *testing.T) {
	t.Parallel()
	var s secrets
	s.learnAddress("postgres://app:p%40ss%2Fword@db/app")
	s.learnAddress("nats://t0ken-t0ken@a:4222, nats://b:4222")
	s.learn("")
	s.learnAddress("postgres://app:taskledger@db/app") // commands and the prefix of errors have this word
	have := s.hide(`taskledger: wrong password "p@ss/word" (p%40ss%2Fword), token t0ken-t0ken`)
	if want := `taskledger: wrong password "xxxxx" (xxxxx), token xxxxx`; have != want {
		t.Errorf("got %q, want %q", have, want)
	}
}

// A user without a password is no secret: with compose.yaml the host has the same name.
func TestHideNoUser(t *testing.T) {
	t.Parallel()
	var s secrets
	s.learnAddress("postgres://postgres@postgres/app")
	s.learnAddress("postgresql://postgres@postgres/app")
	const text = `password authentication failed for user "postgres": lookup postgres: no such host`
	if have := s.hide(text); have != text {
		t.Errorf("got %q", have)
	}
}

func FuzzHide(f *testing.F) {
	f.Add("secret")
	f.Add("p@ss/w:o?r#d%")
	f.Fuzz(func(t *testing.T, password string) {
		if len(password) < 4 || password == "taskledger" || strings.Contains(hidden, password) ||
			strings.Contains("postgres://user@db/app: cannot", password) {
			t.Skip("a word of the text itself")
		}
		var s secrets
		address := (&url.URL{Scheme: "postgres", User: url.UserPassword("user", password), Host: "db", Path: "/app"}).
			String()
		s.learnAddress(address)
		s.learn(password)
		for _, text := range []string{address, fmt.Sprintf("cannot use %s: %s", address, password)} {
			have := s.hide(text)
			if strings.Contains(strings.ReplaceAll(have, hidden, "\x00"), password) {
				t.Errorf("%q shows %q", have, password)
			}
		}
	})
}
