package operator

// Statements are those of this package that a test explains, by file name.
var Statements = map[string]string{
	"dead.sql":      deadSQL,
	"find_dead.sql": findDeadSQL,
}
