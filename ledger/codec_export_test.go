package ledger

// What only fuzz tests call directly.
var (
	CheckJSON    = checkJSON
	Nesting      = nesting
	EncodeBinary = encodeBinary
)

// TextArray returns the array literal of texts.
func TextArray(texts []string) string {
	var a textArray
	for _, text := range texts {
		a.add(text)
	}
	return a.String()
}
