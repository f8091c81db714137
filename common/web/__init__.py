"""What the web pages of both programs share: who may open them, their frame and their style.

Needs the packages of the extra `console`. Nothing else imports this.
"""
