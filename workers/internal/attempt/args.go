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

// digestPrefix distinguishes the digest of large args in the head of a task from small args: no JSON begins like this.
const digestPrefix = "sha256:"

// comparedArgs is the size up to which args are compared with those of an offer, larger ones by their digest.
const comparedArgs = 512

// hasArgs reports whether an offer has what the ledger holds for the handler: the args, the envelope and the deadline.
// args are those of the task as they are stored, empty for none, or argsDigest of large ones. meta is the one beside
// them, if a part of it is for the handler; otherwise it is empty. hasArgs reports false if that is uncertain, as for
// bytes whose base64 another program has written.
func hasArgs(m *stream.Message, args, meta []byte) bool {
	if envelope, finishBy := stream.BesideArgs(meta); m.Envelope != envelope || !m.FinishBy.Equal(finishBy) {
		return false
	}
	stored := m.Payload
	if isBase64(meta) {
		stored = make([]byte, 0, base64.StdEncoding.EncodedLen(len(m.Payload))+2)
		stored = append(stored, '"')
		stored = base64.StdEncoding.AppendEncode(stored, m.Payload)
		stored = append(stored, '"')
	}
	if bytes.HasPrefix(args, []byte(digestPrefix)) { // args with these very bytes are forged
		return string(args) == argsDigest(stored)
	}
	return bytes.Equal(args, stored)
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

// argsDigest returns what the head of a task has in place of large args.
func argsDigest(args []byte) string {
	sum := sha256.Sum256(args)
	return digestPrefix + hex.EncodeToString(sum[:])
}
