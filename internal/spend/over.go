package spend

import "fmt"

// OverBudget says that a call may cost more than a budget leaves, or that a budget
// cannot be kept because the model has no price.
type OverBudget struct {
	Which string // "job", "agent" or "tenant"
	text  string
}

// Error is a text for the caller of the model.
func (e *OverBudget) Error() string { return e.text }

// name is what a text calls the budget.
func (b limit) name(c Call) string {
	switch b.which {
	case ofJob:
		return "job " + c.Job
	case ofAgent:
		return fmt.Sprintf("agent %s for the %s", c.Agent, b.Per)
	}
	return fmt.Sprintf("tenant %s for the %s", c.Tenant, b.Per)
}

func (b limit) over(currency string, c Call, cost Money, tokens int64) *OverBudget {
	used := fmt.Sprintf("%s of %s %s used, %s reserved, and this call may cost up to %s", b.at.cost, b.Cost, currency, b.at.reserved, cost)
	spent := b.at.cost >= b.Cost
	if b.Cost == 0 || (limit{Budget: Budget{Cost: b.Cost}, at: b.at}).allows(cost, 0) {
		used = fmt.Sprintf("%d of %d tokens used, %d reserved, and this call may take up to %d", b.at.tokens, b.Tokens, b.at.reservedTokens, tokens)
		spent = b.at.tokens >= b.Tokens
	}
	how := "does not allow this call"
	if spent {
		how = "is spent"
	}
	return &OverBudget{b.which, fmt.Sprintf("the budget of %s %s: %s", b.name(c), how, used)}
}

func (b limit) unpriced(c Call) *OverBudget {
	return &OverBudget{b.which, fmt.Sprintf("the budget of %s limits costs, and the model %s/%s has no price: write one under prices in belay.yaml, or with the model", b.name(c), c.Provider, c.Model)}
}
