package main

import (
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

const hidden = "xxxxx"

// secrets are the texts that must not be printed: known ones, and each text in the form of a password.
type secrets struct {
	mu    sync.Mutex
	known []string
}

// learnAddress adds the secrets in one or several addresses.
func (s *secrets) learnAddress(address string) {
	for _, found := range credentials.FindAllStringSubmatch(address, -1) {
		_, secret, both := strings.Cut(found[2], ":")
		if !both {
			if strings.HasPrefix(found[1], "postgres") {
				continue // a user without a password; the host often has the same name
			}
			secret = found[2] // a NATS token
		}
		s.learn(secret)
		if decoded, err := url.PathUnescape(secret); err == nil {
			s.learn(decoded)
		}
	}
}

// learn adds a secret. It ignores a short one and the program's name, which could be a part of any text.
func (s *secrets) learn(secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(secret) >= 4 && secret != "taskledger" && !slices.Contains(s.known, secret) {
		s.known = append(s.known, secret)
		// a longer one may contain a shorter one
		slices.SortFunc(s.known, func(a, b string) int { return len(b) - len(a) })
	}
}

var (
	// credentials matches a scheme and the text before the last @ of an authority; a password that is not escaped may
	// contain any character.
	credentials = regexp.MustCompile(`(\w*)://([^/\s]*|[^\s]*)@`)
	passwords   = regexp.MustCompile(`(?i)((?:password|passwd|sslpassword|token)\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)`)
)

// hide returns text without secrets.
func (s *secrets) hide(text string) string {
	text = credentials.ReplaceAllString(text, "${1}://"+hidden+"@")
	text = passwords.ReplaceAllString(text, "${1}"+hidden)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range s.known {
		text = strings.ReplaceAll(text, secret, hidden)
	}
	return text
}

// redactor hides secrets in the lines written through it; each write has whole lines.
type redactor struct {
	to      io.Writer
	secrets *secrets
}

func (r *redactor) Write(p []byte) (int, error) {
	if _, err := io.WriteString(r.to, r.secrets.hide(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
