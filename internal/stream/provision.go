package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Config contains the settings of the stream that a user may choose. The zero value is a stream on one server.
type Config struct {
	Replicas int           // Default: 1.
	MaxAge   time.Duration // age up to which a message is kept. Default: 72 h.
	MaxBytes int64         // Default: 4 GiB. The server reserves this much of its storage.
}

// Defaults of [Config].
const (
	DefaultReplicas = 1
	DefaultMaxAge   = 72 * time.Hour
	DefaultMaxBytes = 4 << 30
)

// Validate reports every fault at once.
func (c Config) Validate() error {
	var faults []error
	if c.Replicas < 0 || c.Replicas > 5 {
		faults = append(faults, fmt.Errorf("stream replicas must be between 1 and 5, got %d", c.Replicas))
	}
	if c.MaxAge != 0 && c.MaxAge < 100*time.Millisecond {
		faults = append(faults, fmt.Errorf("stream max age must be at least 100ms, got %s", c.MaxAge))
	}
	if c.MaxBytes < 0 || c.MaxBytes > 0 && c.MaxBytes < 1<<16 {
		faults = append(faults, fmt.Errorf("stream max bytes must be at least 64 KiB, got %d", c.MaxBytes))
	}
	return errors.Join(faults...)
}

// WithDefaults returns c with every zero replaced by its default.
func (c Config) WithDefaults() Config {
	if c.Replicas == 0 {
		c.Replicas = DefaultReplicas
	}
	if c.MaxAge == 0 {
		c.MaxAge = DefaultMaxAge
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	return c
}

// maxConsumers is more than any ledger needs.
const maxConsumers = 1_000_000

// metadataInstallation is the key of the installation that owns a stream.
const metadataInstallation = "taskledger_installation"

// ForeignError reports that the stream belongs to another installation.
type ForeignError struct {
	Stream      string
	Found, Want string // installation ids
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("stream %s belongs to the ledger %s, this is %s: "+
		"use another NATS account or --nats-prefix, or, if that ledger no longer exists: "+
		"taskledger rebuild stream --foreign",
		e.Stream, e.Found, e.Want)
}

// Owner returns the installation in the metadata of a stream, "" if it has none.
func Owner(info *jetstream.StreamInfo) string { return info.Config.Metadata[metadataInstallation] }

// CheckOwner returns a [*ForeignError] if the stream's metadata name another installation.
func CheckOwner(info *jetstream.StreamInfo, installation string) error {
	if found := Owner(info); found != "" && found != installation {
		return &ForeignError{Stream: info.Config.Name, Found: found, Want: installation}
	}
	return nil
}

// UnsuitableError reports settings of the stream under which the relay cannot keep its promises.
type UnsuitableError struct {
	Stream  string
	Reasons []string
}

func (e *UnsuitableError) Error() string {
	return fmt.Sprintf("stream %s cannot be used: %s: edit the stream, or: taskledger rebuild stream", e.Stream,
		strings.Join(e.Reasons, "; "))
}

// unsuitable returns the settings that no operator may choose.
func (p Prefix) unsuitable(c jetstream.StreamConfig) []string {
	var reasons []string
	for _, r := range []struct {
		wrong bool
		text  string
	}{
		{!slices.Contains(c.Subjects, p.AllSubjects()), "it does not take the subjects " + p.AllSubjects()},
		{c.Retention != jetstream.LimitsPolicy, "its retention is not limits"},
		{c.Discard != jetstream.DiscardOld, "it refuses new messages when it is full"},
		{c.MaxMsgsPerSubject > 0, "it limits the messages of a subject"},
		{c.NoAck, "it does not acknowledge"},
		{c.Sealed, "it is sealed"},
		{len(c.Sources) > 0 || c.Mirror != nil, "it takes messages from other streams"},
	} {
		if r.wrong {
			reasons = append(reasons, r.text)
		}
	}
	return reasons
}

// settings returns the configuration with which a stream is created.
func (p Prefix) settings(c Config, installation string) jetstream.StreamConfig {
	c = c.WithDefaults()
	return jetstream.StreamConfig{
		Name:        p.Stream(),
		Description: "events of a task ledger; derived, rebuilt from the database",
		Subjects:    []string{p.AllSubjects()},
		Retention:   jetstream.LimitsPolicy, // acks must not cost writes, and relays search the stored messages
		Discard:     jetstream.DiscardOld,   // a full stream stops no event
		Storage:     jetstream.FileStorage,
		MaxAge:      c.MaxAge,
		MaxBytes:    c.MaxBytes,
		Replicas:    c.Replicas,
		// Each kind has two consumers. Without this setting a server allows a thousand in all.
		MaxConsumers: maxConsumers,
		Metadata:     map[string]string{metadataInstallation: installation},
	}
}

// Ensure returns the stream of an installation and creates it if it is missing. Processes may call it
// concurrently. It never changes a stream that exists; see [Prefix.Drift] and [RaiseLimit]. It returns a
// [*ForeignError] if the stream belongs to another installation, and an [*UnsuitableError].
func Ensure(ctx context.Context, js jetstream.JetStream, c Config, installation string) (jetstream.Stream, error) {
	p := PrefixOf(js.Conn())
	name := p.Stream()
	s, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		settings := p.settings(c, installation)
		s, err = js.CreateStream(ctx, settings)
		if TooManyConsumers(err) { // the account's own limit applies then
			settings.MaxConsumers = -1
			s, err = js.CreateStream(ctx, settings)
		}
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			s, err = js.Stream(ctx, name) // another process has just created it with other settings
		}
	}
	if hasNoRoom(err) {
		return nil, fmt.Errorf("provision stream %s: NATS lacks space for %d MiB: raise its max_file_store or the "+
			"account's limit, or restart it when its disk has room, or: taskledger serve --stream-max-bytes: %w",
			name, c.WithDefaults().MaxBytes>>20, err)
	}
	if err != nil {
		return nil, fmt.Errorf("provision stream %s: %w", name, err)
	}
	if err := CheckOwner(s.CachedInfo(), installation); err != nil {
		return nil, err
	}
	if reasons := p.unsuitable(s.CachedInfo().Config); reasons != nil {
		return nil, &UnsuitableError{Stream: name, Reasons: reasons}
	}
	return s, nil
}

// RaiseLimit raises the limit of a stream that exists to c.MaxBytes, if that is set and higher. It returns the stream.
// It never lowers the limit, which could delete messages.
func RaiseLimit(
	ctx context.Context, js jetstream.JetStream, s jetstream.Stream, c Config,
) (changed jetstream.Stream, err error) {
	found := s.CachedInfo().Config
	if found.MaxBytes < 1 || c.MaxBytes <= found.MaxBytes {
		return s, nil
	}
	found.MaxBytes = c.MaxBytes
	if changed, err = js.UpdateStream(ctx, found); err != nil {
		return s, fmt.Errorf("raise the limit of stream %s to %d bytes: %w", found.Name, c.MaxBytes, err)
	}
	return changed, nil
}

// TooManyConsumers reports whether the server refused another consumer.
func TooManyConsumers(err error) bool { return hasCode(err, 10026) }

// hasNoRoom reports whether the server or the account has less storage than a stream may use.
func hasNoRoom(err error) bool { return hasCode(err, 10047, 10002) }

// hasCode reports whether err is one of the server's errors.
func hasCode(err error, codes ...jetstream.ErrorCode) bool {
	var api jetstream.JetStreamError
	return errors.As(err, &api) && api.APIError() != nil && slices.Contains(codes, api.APIError().ErrorCode)
}

// Drift returns one sentence for each setting of a stream that differs from c. It is for display: operators may change
// settings. The stream's limits are compared only if c sets them, because the defaults are for a new stream.
func (p Prefix) Drift(info *jetstream.StreamInfo, c Config, installation string) []string {
	found, want := info.Config, p.settings(c, installation)
	var drift []string
	differ := func(what string, found, want any) {
		if fmt.Sprint(found) != fmt.Sprint(want) {
			drift = append(drift, fmt.Sprintf("%s is %v, configured is %v", what, found, want))
		}
	}
	slices.Sort(found.Subjects)
	differ("subjects", found.Subjects, want.Subjects)
	differ("storage", found.Storage, want.Storage)
	if c.MaxAge != 0 {
		differ("max age", found.MaxAge, want.MaxAge)
	}
	if c.MaxBytes != 0 {
		differ("max bytes", found.MaxBytes, want.MaxBytes)
	}
	differ("max messages", found.MaxMsgs, int64(-1))
	if c.Replicas != 0 {
		differ("replicas", found.Replicas, want.Replicas)
	}
	differ("max consumers", found.MaxConsumers, want.MaxConsumers)
	differ("deny purge", found.DenyPurge, false)
	differ("installation", found.Metadata[metadataInstallation], installation)
	return drift
}
