package archive

func init() { segmentBytes = 256 << 10 }

// For tests.
var (
	ParseLine  = parseLine
	AppendLine = appendLine
)
