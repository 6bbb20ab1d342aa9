package natsserver

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// logger writes the server's log to slog. It collects fatal errors, because a server that is embedded
// does not exit after one but continues half started.
type logger struct {
	log *slog.Logger

	mu     sync.Mutex
	fatals []error // guarded by mu
}

func newLogger(log *slog.Logger) *logger {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &logger{log: log}
}

// fatal returns the fatal errors, or nil.
func (l *logger) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.fatals...)
}

func (l *logger) Fatalf(format string, a ...any) {
	err := fmt.Errorf(format, a...)
	l.log.Error(err.Error())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fatals = append(l.fatals, err)
}

func (l *logger) Noticef(format string, a ...any) { l.log.Info(fmt.Sprintf(format, a...)) }
func (l *logger) Warnf(format string, a ...any)   { l.log.Warn(fmt.Sprintf(format, a...)) }
func (l *logger) Errorf(format string, a ...any)  { l.log.Error(fmt.Sprintf(format, a...)) }
func (l *logger) Debugf(format string, a ...any)  { l.log.Debug(fmt.Sprintf(format, a...)) }
func (l *logger) Tracef(format string, a ...any)  { l.log.Debug(fmt.Sprintf(format, a...)) }
