package feed

import (
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/strictjson"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/place_after.sql
var placeAfterSQL string

// ErrForeignPlace means that a place was reached in another database, or in this one before a crash. Its transaction
// IDs have no meaning here.
var ErrForeignPlace = errors.New("the place belongs to another database, or to this one before a crash")

// Place returns the place of the feed: everything before it was returned by Next or Poll.
func (f *Feed) Place() Place { return f.place.Place }

// PlaceAfter returns a place for a reader that was given events by another reader, the last of them at position p.
// [Between] from there misses no event. It returns some events again: those above the last position drawn at a moment
// before the commit of p, see the package comment. p 0 is the beginning of the ledger.
//
// Errors: [ledger.ErrUnknownPosition].
func PlaceAfter(ctx context.Context, db ledger.DB, p ledger.Position) (Place, error) {
	place := Place{Window: Window{Seen: Beginning()}}
	if p == 0 {
		return place, nil
	}
	found, err := pgquery.Row(ctx, db, placeAfterSQL, []any{int64(p)}, &place.Seen.Snapshot,
		(*int64)(&place.Seen.Top), &place.Seen.Bound)
	switch {
	case err != nil:
		return Place{}, pgerr.Explain(fmt.Sprintf("place after position %d", p), err)
	case !found:
		return Place{}, fmt.Errorf("%w: %d", ledger.ErrUnknownPosition, p)
	}
	return place, nil
}

// placeText is the text of a place before its encoding.
type placeText struct {
	Database databaseText `json:"d"`
	Place    Place        `json:"p"`
}

// FormatPlace returns a place as text without special characters, for [ParsePlace].
func FormatPlace(ctx context.Context, db ledger.DB, p Place) (string, error) {
	d, err := readDatabase(ctx, db)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(placeText{d, p})
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(text), nil
}

// ParsePlace is the inverse of [FormatPlace]. The text may come from any client: a forged text costs no more than
// another.
//
// Errors: [*ledger.InvalidError]; [ErrForeignPlace].
func ParsePlace(ctx context.Context, db ledger.DB, text string) (Place, error) {
	var parsed placeText
	decoded, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err == nil {
		err = strictjson.Unmarshal(decoded, &parsed)
	}
	p := parsed.Place
	if err == nil {
		err = errors.Join(p.Seen.check(), p.checkUntil())
	}
	if err != nil || p.After < 0 {
		return Place{}, &ledger.InvalidError{Field: "cursor", Value: text,
			Rule: "must be a cursor that was returned before"}
	}
	d, err := readDatabase(ctx, db)
	if err != nil {
		return Place{}, err
	}
	if d != parsed.Database {
		return Place{}, ErrForeignPlace
	}
	return p, nil
}

// databaseText is a database as in the text of a place.
type databaseText struct {
	Origin      string `json:"o"`
	Incarnation string `json:"i"`
}

func readDatabase(ctx context.Context, db ledger.DB) (d databaseText, err error) {
	_, err = pgquery.Row(ctx, db, databaseSQL, nil, &d.Origin, &d.Incarnation, new(int64))
	return d, pgerr.Explain("read the database's origin", err)
}

// Bounds of an edge that any client may have written: a window from it visits each of these transaction IDs.
const (
	maxUnfinished = 20_000
	maxDrawn      = 100_000 // between the snapshot and the bound
)

var errEdge = errors.New("invalid edge")

// check returns an error if no feed can reach the edge, or if a window that begins there costs too much.
func (e Edge) check() error {
	parts := strings.Split(e.Snapshot, ":")
	if len(parts) != 3 || e.Top < 0 {
		return errEdge
	}
	least, leastErr := parseXID(parts[0])
	next, nextErr := parseXID(parts[1])
	bound, boundErr := parseXID(e.Bound)
	if err := errors.Join(leastErr, nextErr, boundErr); err != nil {
		return err
	}
	if least < 3 || next < least || bound < next || bound-next > maxDrawn {
		return errEdge
	}
	if parts[2] == "" {
		return nil
	}
	unfinished := strings.Split(parts[2], ",")
	if len(unfinished) > maxUnfinished {
		return errEdge
	}
	last := least - 1
	for _, text := range unfinished {
		x, err := parseXID(text)
		if err != nil || x <= last || x >= next {
			return errEdge
		}
		last = x
	}
	return nil
}

// checkUntil is check for the end of p's open window, if any.
func (p Place) checkUntil() error {
	if p.isOpen() {
		return p.Until.check()
	}
	if p.Until != (Edge{}) {
		return errEdge
	}
	return nil
}

// parseXID parses a transaction ID, which PostgreSQL writes in decimal.
func parseXID(text string) (uint64, error) {
	if strings.Trim(text, "0123456789") != "" {
		return 0, errEdge
	}
	return strconv.ParseUint(text, 10, 63)
}
