package operator

// Statements are this package's statements whose plans a test reads, by file name.
var Statements = map[string]string{
	"dead.sql":      deadSQL,
	"dead_page.sql": deadPageSQL,
	"find_dead.sql": findDeadSQL,
}
