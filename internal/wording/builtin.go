package wording

import (
	"slices"

	"github.com/belay-run/belay/internal/condition"
)

// texts are the built-in responses by language. Every language has every name.
// ConfirmTool's first text is for a call with arguments, confirmPlain for one
// without.
var texts = map[string]map[string]string{
	"en": {
		IncomingRejected:  "I'm sorry, but I can't help with that message.",
		IncomingHookError: "I'm sorry, but I couldn't process your message. Please try again.",
		RequestHookError:  "I'm sorry, but I can't answer right now. Please try again.",
		ToolCallHookError: "I'm sorry, but I couldn't carry that out. Nothing has been done. Please try again.",
		OutgoingRejected:  "I'm sorry, but I can't give you that answer.",
		InternalError:     "I'm sorry, but something went wrong. Please try again.",
		MaxIterations:     "I'm sorry, but I couldn't finish that. Please try again, perhaps in smaller steps.",
		EmptyResponse:     "I'm sorry, but I have no answer to that. Could you put it another way?",
		ConfirmTool:       "I am about to run {tool} with {arguments}. Shall I go ahead?",
		confirmPlain:      "I am about to run {tool}. Shall I go ahead?",
		ConfirmDenied:     "All right, I won't do that.",
		AskContinue:       "Is there anything else I can do for you?",
		AskResume:         "Shall we go back to {interrupted_task_name}?",
		DeclineInDomain:   "I'm sorry, that is something I can't help with here.",
		DeclineOther:      "I'm sorry, that lies outside what I can help with.",
	},
	"de": {
		IncomingRejected:  "Es tut mir leid, bei dieser Nachricht kann ich nicht helfen.",
		IncomingHookError: "Es tut mir leid, ich konnte die Nachricht nicht verarbeiten. Bitte versuchen Sie es noch einmal.",
		RequestHookError:  "Es tut mir leid, ich kann gerade nicht antworten. Bitte versuchen Sie es noch einmal.",
		ToolCallHookError: "Es tut mir leid, das konnte ich nicht ausführen. Es wurde nichts verändert. Bitte versuchen Sie es noch einmal.",
		OutgoingRejected:  "Es tut mir leid, diese Antwort kann ich nicht geben.",
		InternalError:     "Es tut mir leid, da ist etwas schiefgegangen. Bitte versuchen Sie es noch einmal.",
		MaxIterations:     "Es tut mir leid, das konnte ich nicht zu Ende führen. Bitte versuchen Sie es noch einmal, vielleicht in kleineren Schritten.",
		EmptyResponse:     "Es tut mir leid, darauf habe ich keine Antwort. Können Sie es anders sagen?",
		ConfirmTool:       "Ich würde jetzt {tool} ausführen, mit {arguments}. Soll ich das tun?",
		confirmPlain:      "Ich würde jetzt {tool} ausführen. Soll ich das tun?",
		ConfirmDenied:     "In Ordnung, das lasse ich.",
		AskContinue:       "Kann ich sonst noch etwas für Sie tun?",
		AskResume:         "Möchten Sie mit {interrupted_task_name} weitermachen?",
		DeclineInDomain:   "Es tut mir leid, dabei kann ich hier nicht helfen.",
		DeclineOther:      "Es tut mir leid, das gehört nicht zu dem, wobei ich helfen kann.",
	},
	"es": {
		IncomingRejected:  "Lo siento, no puedo ayudar con ese mensaje.",
		IncomingHookError: "Lo siento, no he podido procesar el mensaje. Por favor, inténtelo de nuevo.",
		RequestHookError:  "Lo siento, ahora mismo no puedo responder. Por favor, inténtelo de nuevo.",
		ToolCallHookError: "Lo siento, no he podido llevarlo a cabo. No se ha hecho nada. Por favor, inténtelo de nuevo.",
		OutgoingRejected:  "Lo siento, no puedo dar esa respuesta.",
		InternalError:     "Lo siento, algo ha salido mal. Por favor, inténtelo de nuevo.",
		MaxIterations:     "Lo siento, no he podido terminarlo. Por favor, inténtelo de nuevo, quizá en pasos más pequeños.",
		EmptyResponse:     "Lo siento, no tengo respuesta para eso. ¿Puede decirlo de otra manera?",
		ConfirmTool:       "Voy a ejecutar {tool} con {arguments}. ¿Quiere que siga?",
		confirmPlain:      "Voy a ejecutar {tool}. ¿Quiere que siga?",
		ConfirmDenied:     "De acuerdo, no lo haré.",
		AskContinue:       "¿Puedo ayudarle en algo más?",
		AskResume:         "¿Quiere volver a {interrupted_task_name}?",
		DeclineInDomain:   "Lo siento, con eso no puedo ayudar aquí.",
		DeclineOther:      "Lo siento, eso queda fuera de lo que puedo hacer por usted.",
	},
}

const confirmPlain = "" // no response of its own: a variant of ConfirmTool

var withArguments = func() *condition.Condition {
	c, err := condition.Compile(`arguments and arguments != "{}"`)
	if err != nil {
		panic(err)
	}
	return c
}()

func builtin(language string) map[string][]Variant {
	of, ok := texts[primary(language)]
	if !ok {
		of = texts["en"]
	}
	book := make(map[string][]Variant, len(of))
	for name, text := range of {
		switch name {
		case confirmPlain:
		case ConfirmTool:
			book[name] = []Variant{{Text: text, Condition: withArguments}, {Text: of[confirmPlain]}}
		default:
			// What Belay's own skills say may be put into other words; refusals and
			// failures may not.
			book[name] = []Variant{{Text: text, Rephrase: slices.Contains(OfSkills, name)}}
		}
	}
	return book
}
