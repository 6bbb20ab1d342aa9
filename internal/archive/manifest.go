package archive

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
)

// format is the first member of each plan and manifest.
const format = "taskledger archive v1"

// Content is the content of a volume.
type Content string

// The contents of volumes.
const (
	Range Content = "range" // all events of a range of positions, in their order
	Tasks Content = "tasks" // all events of some tasks
)

// Plan is the plan of a volume.
type Plan struct {
	// Name is the name of the volume: 1 to 100 of the characters a to z, 0 to 9 and -, beginning with a letter or
	// digit.
	Name    string  `json:"name"`
	Ledger  string  `json:"ledger"` // the ledger's origin: [seal.Checkpoint].IsOf
	Content Content `json:"content"`
	// From and To are the first and the last position of a [Range]: the volume contains each event between them that
	// is of one of the kinds. They are 0 for [Tasks].
	From  ledger.Position `json:"from"`
	To    ledger.Position `json:"to"`
	Kinds []ledger.Kind   `json:"kinds"` // in order; empty: all
}

var volumeName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,99}$`)

// Validate returns an [*ledger.InvalidError] if p is invalid.
func (p Plan) Validate() error {
	switch {
	case !volumeName.MatchString(p.Name):
		return &ledger.InvalidError{Field: "name", Value: p.Name,
			Rule: "must be 1 to 100 of a to z, 0 to 9 and -, and not begin with -"}
	case p.Ledger == "":
		return &ledger.InvalidError{Field: "ledger", Rule: "must not be empty"}
	case p.Content != Range && p.Content != Tasks:
		return &ledger.InvalidError{Field: "content", Value: string(p.Content), Rule: "must be range or tasks"}
	case p.From > p.To || p.From < 0:
		return &ledger.InvalidError{Field: "from", Value: fmt.Sprint(int64(p.From)),
			Rule: fmt.Sprintf("must be between 0 and the last position, %d", p.To)}
	}
	return nil
}

// Manifest describes a complete volume.
type Manifest struct {
	Format string `json:"format"` // "taskledger archive v1"
	Plan

	Events   int64           `json:"events"`
	First    ledger.Position `json:"first"` // lowest position; 0 without events
	Last     ledger.Position `json:"last"`
	Earliest time.Time       `json:"earliest"` // lowest recorded_at; zero without events
	Latest   time.Time       `json:"latest"`
	// Checkpoint is of a tree that the archive contains as tiles, and that covers the volume's events with lower
	// leaves than its size. Nil: no event is proved.
	Checkpoint *seal.Checkpoint `json:"checkpoint"`
	Logins     []Login          `json:"logins"` // names for login_id of the events
	Segments   []Segment        `json:"segments"`
	Index      []IndexPart      `json:"index"`
}

// Login is the name for a login_id.
type Login struct {
	ID   int32  `json:"id"`
	Name string `json:"name"`
}

// Segment is a file of events.
type Segment struct {
	File     string          `json:"file"` // without the directory
	Bytes    int64           `json:"bytes"`
	SHA256   string          `json:"sha256"` // of the file, in hexadecimal
	Events   int64           `json:"events"`
	First    ledger.Position `json:"first"`
	Last     ledger.Position `json:"last"`
	Earliest time.Time       `json:"earliest"`
	Latest   time.Time       `json:"latest"`
}

// IndexPart is a file of the index.
type IndexPart struct {
	File    string `json:"file"`
	Bytes   int64  `json:"bytes"`
	SHA256  string `json:"sha256"`
	Entries int64  `json:"entries"`
	First   string `json:"first"` // the first entry's hash of a key, in hexadecimal
}

// summary is the content of the file by which a segment becomes part of the volume.
type summary struct {
	Segment

	Run      IndexPart `json:"run"`       // the sorted entries of this segment; Close removes it with the summary
	LoginIDs []int32   `json:"login_ids"` // of its events
}

// The names of objects.
const (
	volumesPrefix = "volumes/"
	planFile      = "plan.json"
	manifestFile  = "manifest.json"
)

func object(volume, file string) string { return volumesPrefix + volume + "/" + file }

// hashDigits is how many digits of a file's hash its name contains.
const hashDigits = 16

// ListVolumes returns the names of the complete volumes of an archive, in order.
func ListVolumes(ctx context.Context, s Store) (names []string, err error) {
	return listWith(ctx, s, manifestFile)
}

// Unfinished returns the plans of volumes without a manifest, in the order of their names: a writer is at work or was
// killed.
func Unfinished(ctx context.Context, s Store) (plans []Plan, err error) {
	begun, err := listWith(ctx, s, planFile)
	if err != nil {
		return nil, err
	}
	for _, name := range begun {
		if _, err := ReadManifest(ctx, s, name); err == nil || !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		p, err := readPlan(ctx, s, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		plans = append(plans, p)
	}
	return plans, nil
}

func listWith(ctx context.Context, s Store, file string) (names []string, err error) {
	objects, err := s.List(ctx, volumesPrefix)
	for _, o := range objects {
		if dir, base := path.Split(o); base == file {
			names = append(names, strings.TrimSuffix(strings.TrimPrefix(dir, volumesPrefix), "/"))
		}
	}
	return names, err
}

func readPlan(ctx context.Context, s Store, volume string) (p Plan, err error) {
	text, err := s.Get(ctx, object(volume, planFile), 0, -1)
	if err != nil {
		return Plan{}, err
	}
	if err := decodeFile(object(volume, planFile), text, &p); err != nil {
		return Plan{}, err
	}
	return p, nil
}

// ReadManifest returns the manifest of a volume.
//
// Errors: an error that is [fs.ErrNotExist] without the volume; [*FileError].
func ReadManifest(ctx context.Context, s Store, volume string) (m Manifest, err error) {
	name := object(volume, manifestFile)
	text, err := s.Get(ctx, name, 0, -1)
	if err != nil {
		return Manifest{}, err
	}
	if err := decodeFile(name, text, &m); err != nil {
		return Manifest{}, err
	}
	if problem := m.problem(volume); problem != "" {
		return Manifest{}, &FileError{File: name, Problem: problem}
	}
	return m, nil
}

// decodeFile decodes a file that marshalFile has encoded.
func decodeFile(name string, text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return &FileError{File: name, Problem: "it is not a file of an archive: " + err.Error()}
	}
	if same, err := marshalFile(into); err != nil || !bytes.Equal(same, text) {
		return &FileError{File: name, Problem: "it is not in the form in which the writer writes it"}
	}
	return nil
}

// problem returns why a manifest contradicts itself, or "".
func (m *Manifest) problem(volume string) string {
	if m.Format != format {
		return fmt.Sprintf("its format is %q, want %q: use the version of taskledger that wrote it", m.Format, format)
	}
	if err := m.Plan.Validate(); err != nil {
		return err.Error()
	}
	if m.Name != volume {
		return fmt.Sprintf("it is the manifest of volume %q", m.Name)
	}
	events, entries, last := int64(0), int64(0), ledger.Position(0)
	for i, s := range m.Segments {
		switch {
		case s.Events < 1 || s.First > s.Last || s.Bytes < 1:
			return fmt.Sprintf("segment %d is empty or ends before it begins", i+1)
		case m.Content == Range && (s.First <= last || s.First < m.From || s.Last > m.To):
			return fmt.Sprintf("segment %d, positions %d to %d, is out of order or range", i+1, s.First, s.Last)
		case s.File != segmentFile(i+1, s.SHA256) || !isHash(s.SHA256):
			return fmt.Sprintf("segment %d names the file %q", i+1, s.File)
		}
		events, last = events+s.Events, s.Last
	}
	first := ""
	for i, p := range m.Index {
		decoded, err := hex.DecodeString(p.First)
		switch {
		case err != nil || len(decoded) != hashBytes || p.First < first || p.Entries < 1 ||
			p.Bytes != p.Entries*entryBytes:
			return fmt.Sprintf("part %d of the index is out of order or has a wrong size", i+1)
		case p.File != indexFile(i+1, p.SHA256) || !isHash(p.SHA256):
			return fmt.Sprintf("part %d of the index names the file %q", i+1, p.File)
		}
		first, entries = p.First, entries+p.Entries
	}
	if events != m.Events {
		return fmt.Sprintf("its segments have %d events, and it has %d", events, m.Events)
	}
	if entries == 0 && events > 0 {
		return "it has no index"
	}
	return ""
}

func isHash(text string) bool {
	decoded, err := hex.DecodeString(text)
	return err == nil && len(decoded) == 32 && strings.ToLower(text) == text
}

func segmentFile(n int, hash string) string {
	return fmt.Sprintf("segment-%06d-%.*s.jsonl.zst", n, hashDigits, hash)
}

func summaryFile(n int) string { return fmt.Sprintf("segment-%06d.json", n) }

func runFile(n int, hash string) string { return fmt.Sprintf("run-%06d-%.*s", n, hashDigits, hash) }

func indexFile(n int, hash string) string { return fmt.Sprintf("index-%06d-%.*s", n, hashDigits, hash) }

// FileError is a file of an archive that is damaged, forged, or of another volume.
type FileError struct {
	File    string
	Problem string
}

func (e *FileError) Error() string { return e.File + ": " + e.Problem }
