package attempt

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// HasArgsOf reports whether a message has what the ledger holds for the handler: the args, the envelope and the
// deadline. It reports false if that is uncertain, as for bytes whose base64 another program has written.
func (h Head) HasArgsOf(m stream.Message) bool {
	meta := []byte(h.ArgsMeta)
	if envelope, finishBy := stream.BesideArgs(meta); m.Envelope != envelope || !m.FinishBy.Equal(finishBy) {
		return false
	}
	return h.ArgsDigest == digest(m.Payload, isBase64(meta))
}

// isBase64 reports whether the meta of a task declares that its args are bytes, as package ledger reads it.
func isBase64(meta []byte) bool {
	if !bytes.Contains(meta, []byte(`"encoding"`)) {
		return false
	}
	var members map[string]json.RawMessage
	var encoding string
	return json.Unmarshal(meta, &members) == nil && json.Unmarshal(members["encoding"], &encoding) == nil &&
		encoding == ledger.EncodingBase64
}

// digest returns the SHA-256 of args as the ledger stores them, in hexadecimal; "" for none.
func digest(payload []byte, isBinary bool) string {
	var sum [sha256.Size]byte
	switch {
	case isBinary:
		text := make([]byte, 0, base64.StdEncoding.EncodedLen(len(payload))+2)
		text = append(text, '"')
		text = base64.StdEncoding.AppendEncode(text, payload)
		sum = sha256.Sum256(append(text, '"'))
	case len(payload) == 0:
		return ""
	default:
		sum = sha256.Sum256(payload)
	}
	return hex.EncodeToString(sum[:])
}
