package natsserver

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// logger hands what the server says to slog, and keeps what it would have died
// of: as a library it goes on, half started.
type logger struct {
	log *slog.Logger

	mu     sync.Mutex
	deaths []error
}

func newLogger(log *slog.Logger) *logger {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &logger{log: log}
}

// fatal returns what the server would have died of, nil if of nothing.
func (l *logger) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.deaths...)
}

func (l *logger) Fatalf(format string, a ...any) {
	death := fmt.Errorf(format, a...)
	l.log.Error(death.Error())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaths = append(l.deaths, death)
}

func (l *logger) Noticef(format string, a ...any) { l.log.Info(fmt.Sprintf(format, a...)) }
func (l *logger) Warnf(format string, a ...any)   { l.log.Warn(fmt.Sprintf(format, a...)) }
func (l *logger) Errorf(format string, a ...any)  { l.log.Error(fmt.Sprintf(format, a...)) }
func (l *logger) Debugf(format string, a ...any)  { l.log.Debug(fmt.Sprintf(format, a...)) }
func (l *logger) Tracef(format string, a ...any)  { l.log.Debug(fmt.Sprintf(format, a...)) }
