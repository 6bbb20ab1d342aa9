// Package loglimit bounds repeated log lines, such as one for each task while a server is unavailable.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Every is the least time between two lines with the same message.
const Every = 10 * time.Second

// Logger logs the first line with a message at once. It counts later lines and logs the last of them after [Every],
// with its own time, and their number as attribute "times". It is safe for concurrent use.
type Logger struct {
	mu       sync.Mutex
	messages map[message]*suppression // nil: closed, nothing is suppressed
}

// message identifies lines that stand for each other.
type message struct {
	logger *slog.Logger
	level  slog.Level
	text   string
}

// suppression counts the lines since the last logged line.
type suppression struct {
	count int
	last  []any // attributes
	at    time.Time
	timer *time.Timer
}

// New returns a logger. Close logs the lines that it has suppressed.
func New() *Logger { return &Logger{messages: make(map[message]*suppression)} }

// Warn logs a line now, or within [Every].
func (l *Logger) Warn(to *slog.Logger, text string, attributes ...any) {
	l.log(message{to, slog.LevelWarn, text}, attributes)
}

// Info logs a line now, or within [Every].
func (l *Logger) Info(to *slog.Logger, text string, attributes ...any) {
	l.log(message{to, slog.LevelInfo, text}, attributes)
}

func (l *Logger) log(m message, attributes []any) {
	l.mu.Lock()
	if s := l.messages[m]; s != nil {
		s.count++
		s.last, s.at = attributes, time.Now()
		l.mu.Unlock()
		return
	}
	l.suppress(m)
	l.mu.Unlock()
	m.log(time.Now(), attributes)
}

// suppress counts the lines that follow. l.mu is held.
func (l *Logger) suppress(m message) {
	if l.messages != nil {
		l.messages[m] = &suppression{timer: time.AfterFunc(Every, func() { l.flush(m) })}
	}
}

// flush logs a message's suppressed lines, if there are any.
func (l *Logger) flush(m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.messages[m]
	if s == nil {
		return
	}
	delete(l.messages, m)
	if s.count > 0 {
		s.log(m)
		l.suppress(m)
	}
}

// Close logs the suppressed lines. Afterwards every line is logged at once.
func (l *Logger) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for m, s := range l.messages {
		s.timer.Stop()
		if s.count > 0 {
			s.log(m)
		}
	}
	l.messages = nil
}

func (s *suppression) log(m message) { m.log(s.at, append(s.last, "times", s.count)) }

// log logs a line of the past: one at the time of its logging would report a problem that may be over.
func (m message) log(at time.Time, attributes []any) {
	ctx := context.Background()
	if h := m.logger.Handler(); h.Enabled(ctx, m.level) {
		r := slog.NewRecord(at, m.level, m.text, 0)
		r.Add(attributes...)
		_ = h.Handle(ctx, r)
	}
}
