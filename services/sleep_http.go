package services

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/probe"
)

const (
	// maxPoll bounds the body of a poll that may be kept while the services sleep.
	maxPoll = 64 << 10
	// maxAdmitted bounds the callers that are remembered.
	maxAdmitted = 10_000
)

// caller identifies the credentials of a worker.
type caller [sha256.Size]byte

// poll is a request of a worker that waits for a task.
type poll struct{ end context.CancelFunc }

// wake opens the gate for requests.
func (s *sleeper) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = time.Now()
	s.set(true)
}

// closeGate lets requests wait, and ends the polls of workers. It reports false if a request is being served. Earlier
// messages no longer count: the look that follows shows what they were about.
func (s *sleeper) closeGate() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests > 0 {
		return false
	}
	for _, c := range []chan struct{}{s.message, s.use} {
		select {
		case <-c:
		default:
		}
	}
	s.set(false)
	for p := range s.polls {
		p.end()
	}
	return true
}

// set changes the state. s.mu is held.
func (s *sleeper) set(isAwake bool) {
	if s.isAwake != isAwake {
		s.isAwake = isAwake
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// state returns whether the services are awake, and a channel that is closed when that changes.
func (s *sleeper) state() (isAwake bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isAwake, s.changed
}

// begin counts a request if the services are awake. Otherwise it returns a channel that is closed when they are.
func (s *sleeper) begin() (changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isAwake {
		return s.changed
	}
	s.requests++
	return nil
}

func (s *sleeper) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests--
	s.used = time.Now()
	signal(s.served)
}

// probes answers probes and scrapes from memory while the services sleep. s may be nil: they never sleep.
func (s *sleeper) probes(rest http.Handler) http.Handler {
	if s == nil {
		return rest
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch isAwake, _ := s.state(); {
		case isAwake || r.Method != http.MethodGet && r.Method != http.MethodHead:
			rest.ServeHTTP(w, r)
		case r.URL.Path == "/readyz":
			writeJSON(w, probe.Readiness{Ready: true, Asleep: true, Degraded: []probe.Condition{}})
		case r.URL.Path == "/metrics":
			s.metrics.ServeHTTP(w, r)
		default:
			rest.ServeHTTP(w, r)
		}
	})
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(value) // the client has ended the connection
}

// gate wakes the services for a request, which waits until they are awake. Polls of known workers wait without that.
// s may be nil: the services never sleep.
func (s *sleeper) gate(rest http.Handler) http.Handler {
	if s == nil {
		return rest
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == "/v1/work" && s.serveWork(w, r, rest) {
			return
		}
		for changed := s.begin(); changed != nil; changed = s.begin() {
			signal(s.use)
			select {
			case <-changed:
			case <-s.ended:
				http.Error(w, "the server shuts down", http.StatusServiceUnavailable)
				return
			case <-r.Context().Done():
				return
			}
		}
		defer s.end()
		rest.ServeHTTP(w, r)
	})
}

// serveWork serves the poll of a worker, which waits while the services sleep. It returns false if it has not answered:
// this worker is not known, and the services must wake to admit it.
func (s *sleeper) serveWork(w http.ResponseWriter, r *http.Request, rest http.Handler) bool {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxPoll+1))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), failing{err}, r.Body), r.Body}
	ask, isValid := api.ParsePoll(body)
	if err != nil || len(body) > maxPoll || !isValid {
		return false
	}
	of := s.callerOf(r)
	timeUp := time.NewTimer(ask.Wait)
	defer timeUp.Stop()
	for {
		isAwake, changed := s.state()
		if isAwake {
			if s.pass(w, r, of, rest) {
				return true
			}
			continue
		}
		if !s.isAdmitted(of) {
			return false
		}
		select {
		case <-changed:
			continue
		case <-timeUp.C:
		case <-s.ended:
		case <-r.Context().Done():
		}
		writeJSON(w, ask.Empty())
		return true
	}
}

// pass passes a poll on until the services fall asleep. It returns false if they are not awake.
func (s *sleeper) pass(w http.ResponseWriter, r *http.Request, of caller, rest http.Handler) bool {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	p := &poll{cancel}
	s.mu.Lock()
	if !s.isAwake {
		s.mu.Unlock()
		return false
	}
	s.polls[p] = struct{}{}
	s.polling.Add(1)
	s.mu.Unlock()
	defer s.polling.Done()
	answer := &statusWriter{ResponseWriter: w}
	rest.ServeHTTP(answer, r.WithContext(ctx))
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.polls, p)
	if cmp.Or(answer.status, http.StatusOK) == http.StatusOK {
		if len(s.admitted) >= maxAdmitted {
			clear(s.admitted)
		}
		s.admitted[of] = struct{}{}
	}
	return true
}

func (s *sleeper) isAdmitted(of caller) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found := s.admitted[of]
	return found
}

// callerOf returns the credentials of a request: whatever admits it contributes.
func (s *sleeper) callerOf(r *http.Request) caller {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	names := []string{"Authorization", "Cookie", "X-Forwarded-User"}
	if s.config.API != nil {
		names = append(names, s.config.API.config.Proxy.Header)
	}
	text := fmt.Appendf(nil, "%q %q", host, r.Host)
	for _, name := range names {
		text = fmt.Appendf(text, " %q", r.Header.Values(name))
	}
	if r.TLS != nil {
		for _, certificate := range r.TLS.PeerCertificates {
			text = fmt.Appendf(text, " %q", certificate.Raw)
		}
	}
	sum := sha256.Sum256(text)
	return sum
}

// failing is a reader that fails, unless its error is nil.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, cmp.Or(f.err, io.EOF) }

// statusWriter notes the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = cmp.Or(w.status, status)
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
