package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/taskledger/taskledger/ledger"
)

const (
	// pieceBytes is how much of a segment is read at once.
	pieceBytes = 512 << 10
	// frameMemory bounds the memory of a frame. It is far above the size of any event.
	frameMemory = 1 << 30
)

// segmentReader reads the records of a segment in order.
type segmentReader struct {
	ctx     context.Context
	store   Store
	object  string
	segment Segment
	number  int // from 1

	decoder *zstd.Decoder
	buffer  []byte // compressed, from offset at
	at, end int64  // end: how much is read
	sum     hash.Hash
	frame   frame
	text    []byte // of the frame, from the next line on
	decoded []byte // its memory
	found   Segment
}

func newSegmentReader(ctx context.Context, s Store, m *Manifest, i int) (*segmentReader, error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(frameMemory),
		zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	return &segmentReader{
		ctx: ctx, store: s, object: object(m.Name, m.Segments[i].File), segment: m.Segments[i], number: i + 1,
		decoder: decoder, sum: sha256.New(),
	}, nil
}

func (r *segmentReader) close() { r.decoder.Close() }

func (r *segmentReader) fail(format string, args ...any) error {
	return &FileError{File: r.object, Problem: fmt.Sprintf(format, args...)}
}

// next returns the next record and its line. It returns [io.EOF] at the end of a segment that matches its manifest.
func (r *segmentReader) next() (Record, []byte, error) {
	if len(r.text) == 0 {
		if err := r.nextFrame(); err != nil {
			return Record{}, nil, err
		}
	}
	line, rest, isWhole := bytes.Cut(r.text, []byte{'\n'})
	if !isWhole {
		return Record{}, nil, r.fail("the frame at %d does not end with a line break", r.frame.offset)
	}
	r.text = rest
	record, err := parseLine(line)
	if err != nil {
		return Record{}, nil, r.fail("event %d: %s", r.found.Events+1, err)
	}
	if record.Position <= r.found.Last {
		return Record{}, nil, r.fail("position %d follows position %d", record.Position, r.found.Last)
	}
	r.found.note(&record)
	return record, line, nil
}

// nextFrame decodes the next frame.
func (r *segmentReader) nextFrame() error {
	for {
		n, err := frameLength(r.buffer)
		if err != nil {
			return r.fail("the frame at %d is invalid: %s", r.at, err)
		}
		if n > 0 {
			r.frame = frame{r.number, int(r.at), n}
			r.decoded, err = r.decoder.DecodeAll(r.buffer[:n], r.decoded[:0])
			if err != nil {
				return r.fail("the frame at %d cannot be decoded: %s", r.at, err)
			}
			r.text, r.buffer, r.at = r.decoded, r.buffer[n:], r.at+int64(n)
			if len(r.text) == 0 {
				return r.fail("the frame at %d is empty", r.frame.offset)
			}
			return nil
		}
		if r.end == r.segment.Bytes {
			return r.finish()
		}
		piece, err := r.store.Get(r.ctx, r.object, r.end, min(pieceBytes, r.segment.Bytes-r.end))
		if err != nil {
			return fmt.Errorf("read %s: %w", r.object, err)
		}
		if len(piece) == 0 {
			return r.fail("it is truncated: %d bytes, want %d", r.end, r.segment.Bytes)
		}
		r.sum.Write(piece)
		r.end += int64(len(piece))
		r.buffer = append(bytes.Clone(r.buffer), piece...)
	}
}

// finish compares the segment with its manifest, and returns [io.EOF] if they match.
func (r *segmentReader) finish() error {
	more, err := r.store.Get(r.ctx, r.object, r.end, 1)
	if err != nil {
		return fmt.Errorf("read %s: %w", r.object, err)
	}
	found := r.found
	found.File, found.Bytes, found.SHA256 = r.segment.File, r.end, hex.EncodeToString(r.sum.Sum(nil))
	switch {
	case len(r.buffer) > 0:
		return r.fail("the frame at %d is truncated", r.at)
	case len(more) > 0:
		return r.fail("it has more than %d bytes", r.segment.Bytes)
	case found.SHA256 != r.segment.SHA256:
		return r.fail("its SHA-256 is %s, and the manifest has %s", found.SHA256, r.segment.SHA256)
	case found != r.segment:
		return r.fail("its events, %d from %d to %d, do not match the manifest", found.Events, found.First, found.Last)
	}
	return io.EOF
}

var errFrame = errors.New("not a frame of zstd")

// frameLength returns the length of the zstd frame at the beginning of b, or 0 if b ends before the frame does.
func frameLength(b []byte) (int, error) {
	var h zstd.Header
	if len(b) < zstd.HeaderMaxSize {
		// A frame of one line is longer.
		return 0, nil
	}
	if err := h.Decode(b); err != nil || h.Skippable {
		return 0, errors.Join(errFrame, err)
	}
	at := h.HeaderSize
	for {
		if len(b) < at+3 {
			return 0, nil
		}
		block := int(b[at]) | int(b[at+1])<<8 | int(b[at+2])<<16
		isLast, kind, size := block&1 == 1, block>>1&3, block>>3
		if kind == 1 { // one byte, repeated
			size = 1
		}
		at += 3 + size
		if isLast {
			break
		}
	}
	if h.HasCheckSum {
		at += 4
	}
	if len(b) < at {
		return 0, nil
	}
	return at, nil
}

// readFrame returns the records of a task in a frame.
func readFrame(ctx context.Context, s Store, m *Manifest, f frame, k ledger.Key) (records []Record, err error) {
	if f.segment < 1 || f.segment > len(m.Segments) {
		problem := fmt.Sprintf("the index names segment %d, which does not exist", f.segment)
		return nil, &FileError{File: object(m.Name, manifestFile), Problem: problem}
	}
	name := object(m.Name, m.Segments[f.segment-1].File)
	fail := func(err error) error {
		return &FileError{File: name, Problem: fmt.Sprintf("the frame at %d: %s", f.offset, err)}
	}
	data, err := s.Get(ctx, name, int64(f.offset), int64(f.length))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if n, err := frameLength(data); err != nil || n != f.length {
		return nil, fail(errors.Join(errFrame, err))
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(frameMemory))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	text, err := decoder.DecodeAll(data, nil)
	if err != nil {
		return nil, fail(err)
	}
	for line := range bytes.SplitSeq(bytes.TrimSuffix(text, []byte{'\n'}), []byte{'\n'}) {
		if !mayContain(line, k) {
			continue
		}
		r, err := parseLine(line)
		if err != nil {
			return nil, fail(err)
		}
		if r.Key == k {
			records = append(records, r)
		}
	}
	return records, nil
}

// mayContain reports whether a line can be of a task, without decoding it.
func mayContain(line []byte, k ledger.Key) bool {
	want := appendString(nil, `,"kind":`, string(k.Kind))
	return bytes.Contains(line, appendString(want, `,"biz_id":`, string(k.BizID)))
}
