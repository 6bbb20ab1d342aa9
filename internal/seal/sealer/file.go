package sealer

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/secret"
	"github.com/taskledger/taskledger/internal/settings"
	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/ledger"
)

// File is the content of a file with the key, the receivers and the witnesses of checkpoints. The zero value seals, and
// publishes nothing.
type File struct {
	// KeyFile names a file, and KeyEnv an environment variable, that contains the secret key of taskledger seal
	// --make-key. At most one of KeyFile, KeyEnv and KeyCommand is set. One is required to publish.
	KeyFile string `json:"key_file"`
	KeyEnv  string `json:"key_env"`
	// KeyCommand is a program with its arguments that holds the secret key elsewhere: it reads a text from its
	// standard input, and writes its Ed25519 signature in base64. PublicKey is the public key, which is required with
	// it.
	KeyCommand []string `json:"key_command"`
	PublicKey  string   `json:"public_key"`

	// Every is the time between two checkpoints, from 1s to 1h. Default: 10s.
	Every settings.Duration `json:"every"`
	// Directory gets the newest checkpoint and the tiles of the tree, see [seal.Directory]. It may be a place in an
	// object store, such as s3://BUCKET/PREFIX, which [Config].Open opens.
	Directory string `json:"directory"`
	// Path is a file to which each checkpoint is appended, followed by an empty line.
	Path string `json:"file"`
	// Subject is a subject of NATS to which each checkpoint is published. It begins with "checkpoint.".
	Subject string `json:"subject"`
	// Webhooks get each checkpoint as a signed request of type [MessageType], whose data is a [Message].
	Webhooks []webhooks.Endpoint `json:"webhooks"`

	Witnesses []Witness `json:"witnesses"`
	// Quorum is how many witnesses must cosign a checkpoint before it is published. Default: 0.
	Quorum int `json:"quorum"`
}

// Witness is a server that cosigns checkpoints.
type Witness struct {
	PublicKey string `json:"public_key"` // name+hash+base64, type 4
	URL       string `json:"url"`        // to which /add-checkpoint is added
}

const (
	defaultEvery = 10 * time.Second
	minEvery     = time.Second
	maxEvery     = time.Hour

	subjectPrefix = "checkpoint."
)

// Parse parses a [File] in JSON and validates it. It reports every fault at once, each an [*ledger.InvalidError] with
// the name of the field. It reads the key.
func Parse(text []byte) (f File, err error) {
	if err := settings.Decode("seal", text, &f); err != nil {
		return f, err
	}
	return f, f.Validate()
}

// Validate reports every fault at once, each an [*ledger.InvalidError] with the name of the field. It reads the key,
// and opens no connection.
func (f File) Validate() error {
	var faults []error
	fault := func(field, value, rule string, a ...any) {
		faults = append(faults, &ledger.InvalidError{Field: field, Value: value, Rule: fmt.Sprintf(rule, a...)})
	}
	faults = append(faults, f.keyFaults()...)
	isPublished := f.Directory != "" || f.Path != "" || f.Subject != "" || len(f.Webhooks) > 0
	switch {
	case isPublished && !f.hasKey():
		fault("key_file", "", "key_file, key_env or key_command is required to publish: taskledger seal --make-key")
	case !isPublished && (f.hasKey() || len(f.Witnesses) > 0):
		fault("directory", "", "directory, file, subject or webhooks is required: a key signs what is published")
	}
	if every := time.Duration(f.Every); every != 0 && (every < minEvery || every > maxEvery) {
		fault("every", every.String(), "must be between %s and %s", minEvery, maxEvery)
	}
	if f.Subject != "" && !isSubject(f.Subject) {
		fault("subject", f.Subject, "must be %s and words joined by dots, without spaces and wildcards", subjectPrefix)
	}
	for i, w := range f.Webhooks {
		field := fmt.Sprintf("webhooks[%d].", i)
		for _, err := range split(w.Validate()) {
			faults = append(faults, settings.Below(field, err))
		}
	}
	for i, w := range f.Witnesses {
		u, err := url.Parse(w.URL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			fault(fmt.Sprintf("witnesses[%d].url", i), w.URL, "must be an http or https URL")
		}
	}
	if f.hasKey() && errors.Join(faults...) == nil {
		if policy, err := f.policy(); err != nil {
			faults = append(faults, err)
		} else {
			faults = append(faults, policy.Validate())
		}
	}
	return errors.Join(faults...)
}

func split(err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

func isSubject(subject string) bool {
	words, ok := strings.CutPrefix(subject, subjectPrefix)
	return ok && !strings.ContainsAny(words, " \t\r\n*>") && !strings.Contains("."+words+".", "..")
}

func (f File) hasKey() bool { return f.KeyFile != "" || f.KeyEnv != "" || len(f.KeyCommand) > 0 }

func (f File) keyFaults() (faults []error) {
	faults = secret.Faults("key", f.KeyFile, f.KeyEnv)
	fault := func(field, rule string) {
		faults = append(faults, &ledger.InvalidError{Field: field, Rule: rule})
	}
	switch isCommand := len(f.KeyCommand) > 0; {
	case isCommand && f.KeyFile+f.KeyEnv != "":
		fault("key_command", "must not be set together with key_file or key_env")
	case isCommand && f.KeyCommand[0] == "":
		fault("key_command", "must be a program and its arguments")
	case isCommand && f.PublicKey == "":
		fault("public_key", "is required with key_command: signatures are verified with it")
	case !isCommand && f.PublicKey != "":
		fault("public_key", "is for key_command: a secret key contains it")
	}
	return faults
}

// signer returns the signer of checkpoints.
func (f File) signer() (*seal.Signer, error) {
	if len(f.KeyCommand) > 0 {
		return seal.NewExternalSigner(f.PublicKey, f.runCommand)
	}
	text, err := secret.Read(f.KeyFile, f.KeyEnv)
	if err != nil {
		return nil, err
	}
	return seal.NewSigner(text)
}

// policy returns the policy that published checkpoints satisfy.
func (f File) policy() (seal.Policy, error) {
	s, err := f.signer()
	if err != nil {
		return seal.Policy{}, err
	}
	p := seal.Policy{Key: s.PublicKey(), Quorum: f.Quorum}
	for _, w := range f.Witnesses {
		p.Witnesses = append(p.Witnesses, w.PublicKey)
	}
	return p, nil
}

// isRemote reports whether the directory is in an object store.
func (f File) isRemote() bool { return strings.Contains(f.Directory, "://") }

func (f File) every() time.Duration { return cmp.Or(time.Duration(f.Every), defaultEvery) }
