package main

import (
	"fmt"
	"log/slog"
	"strings"
)

// logFormat is the format of the log. It is a flag's value.
type logFormat string

const (
	logText logFormat = "text"
	logJSON logFormat = "json" // one value a line
)

func (f *logFormat) String() string { return string(*f) }
func (f *logFormat) Type() string   { return "format" }

// Set implements pflag.Value.
func (f *logFormat) Set(s string) error {
	switch logFormat(s) {
	case logText, logJSON:
		*f = logFormat(s)
		return nil
	}
	return fmt.Errorf("must be text or json, got %q", s)
}

// logLevel is the least level of the log's lines. It is a flag's value.
type logLevel slog.Level

func (l *logLevel) String() string { return strings.ToLower(slog.Level(*l).String()) }
func (l *logLevel) Type() string   { return "level" }

// Set implements pflag.Value.
func (l *logLevel) Set(s string) error {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(s, level.String()) {
			*l = logLevel(level)
			return nil
		}
	}
	return fmt.Errorf("must be debug, info, warn or error, got %q", s)
}

// newLogger returns the log of this program, in its format, without secrets. Secrets are hidden before a value is
// formatted, since JSON escapes characters of a password.
func (a *app) newLogger() *slog.Logger {
	options := &slog.HandlerOptions{Level: a.config.logLevel, ReplaceAttr: a.withoutSecrets}
	if a.config.logFormat == logJSON {
		return slog.New(slog.NewJSONHandler(a.stderr, options))
	}
	return slog.New(slog.NewTextHandler(a.stderr, options))
}

func (a *app) withoutSecrets(_ []string, attr slog.Attr) slog.Attr {
	switch value := attr.Value.Any().(type) {
	case string:
		attr.Value = slog.StringValue(a.secrets.hide(value))
	case error:
		attr.Value = slog.StringValue(a.secrets.hide(value.Error()))
	case fmt.Stringer:
		if attr.Value.Kind() == slog.KindAny {
			attr.Value = slog.StringValue(a.secrets.hide(value.String()))
		}
	}
	return attr
}
